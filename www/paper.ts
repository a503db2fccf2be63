/**
 * The text as it is seen: behind the text area, whose letters are clear, lies the same text in the colours of who wrote it, and beside
 * it are the places to go back to. Text that streams in is added once a frame, and to the text area a few times a second.
 */

import type { Draft, Point, Run } from './draft.js';

/** Milliseconds between two changes of the text area while text streams in. */
const PACE_MS = 250;
/** Pixels between two places in the margin that can be told apart. */
const APART = 20;
/** Most characters of a place's name. */
const NAME = 40;

export class Paper {
  readonly #draft: Draft;
  readonly #area: HTMLTextAreaElement;
  readonly #seen: HTMLElement;
  readonly #margin: HTMLElement;
  readonly #onPoint: (point: Point) => void;
  /** What was streamed and is not yet seen. */
  #waiting = '';
  #frame = 0;
  #told = 0;

  constructor(draft: Draft, area: HTMLTextAreaElement, seen: HTMLElement, margin: HTMLElement, onPoint: (point: Point) => void) {
    this.#draft = draft;
    this.#area = area;
    this.#seen = seen;
    this.#margin = margin;
    this.#onPoint = onPoint;
    new ResizeObserver(() => this.#place()).observe(area);
  }

  /** Shows the draft as it is now. */
  show(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#waiting = '';
    const { text, runs, points } = this.#draft;
    if (this.#area.value !== text) this.#area.value = text;
    let at = 0;
    const spans = splitAt(runs, points).map(({ by, length }) => {
      const out = span(by, text.slice(at, at + length));
      out.dataset['at'] = String(at);
      at += length;
      return out;
    });
    this.#seen.replaceChildren(...spans);
    this.#listPoints();
  }

  /** Shows more of the model's text. */
  stream(text: string): void {
    this.#waiting += text;
    if (this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#flush());
  }

  #flush(): void {
    this.#frame = 0;
    const atEnd = this.atEnd;
    let last = this.#seen.lastElementChild?.lastChild;
    if (!(last instanceof Text) || this.#seen.lastElementChild?.className !== 'fox fresh') {
      const fresh = span('fox', '');
      fresh.className = 'fox fresh';
      last = fresh.appendChild(document.createTextNode(''));
      this.#seen.append(fresh);
    }
    if (last instanceof Text) last.appendData(this.#waiting);
    this.#waiting = '';
    const now = performance.now();
    if (now - this.#told > PACE_MS) {
      this.#told = now;
      this.#area.value = this.#draft.text;
    }
    if (atEnd) this.toEnd();
  }

  /** Whether the end of the text is in sight, or nearly. */
  get atEnd(): boolean {
    const { scrollHeight, scrollTop, clientHeight } = document.documentElement;
    return scrollHeight - scrollTop - clientHeight < 60;
  }

  toEnd(): void {
    document.documentElement.scrollTop = document.documentElement.scrollHeight;
  }

  #listPoints(): void {
    const { text, points } = this.#draft;
    const items = points.map((point) => {
      const before = text.slice(Math.max(point.at - NAME, 0), point.at).trim();
      const button = document.createElement('button');
      button.type = 'button';
      button.className = point.marked ? 'marked' : '';
      button.ariaLabel = `Back to${point.marked ? ' the mark' : ''}: … ${before}`;
      button.title = point.marked ? 'Back to this mark' : 'Back to this place';
      button.disabled = point.at === text.length;
      button.addEventListener('click', () => this.#onPoint(point));
      for (const [event, on] of [['pointerenter', true], ['focus', true], ['pointerleave', false], ['blur', false]] as const) {
        button.addEventListener(event, () => this.#fade(on && !button.disabled ? point.at : Infinity));
      }
      const item = document.createElement('li');
      item.append(button);
      return item;
    });
    this.#margin.replaceChildren(...items);
    this.#place();
  }

  /** Shows what a way back would cut off. */
  #fade(at: number): void {
    for (const part of this.#seen.children) part.classList.toggle('leaving', Number((part as HTMLElement).dataset['at']) >= at);
  }

  /** Puts the places beside their lines; of several on a line the latest is there, or a marked one. */
  #place(): void {
    const { points } = this.#draft;
    const top = this.#seen.getBoundingClientRect().top;
    const parts = [...this.#seen.children] as HTMLElement[];
    const lines = points.map(({ at }) => {
      // The end of the part before the place: its last box is on the place's line.
      const before = parts.findLast((part) => Number(part.dataset['at']) < at);
      const box = [...(before?.getClientRects() ?? [])].at(-1);
      return box === undefined ? 0 : box.top + box.height / 2 - top;
    });
    const items = [...this.#margin.children] as HTMLElement[];
    for (const [ix, item] of items.entries()) {
      const line = lines[ix] ?? 0;
      item.style.top = `${line}px`;
      const better = points.some((point, other) => other !== ix && Math.abs((lines[other] ?? 0) - line) < APART && outranks(point, other, points[ix], ix));
      item.hidden = better;
    }
  }
}

function outranks(a: Point, ixA: number, b: Point | undefined, ixB: number): boolean {
  return a.marked === b?.marked ? ixA > ixB : a.marked;
}

function span(by: string, text: string): HTMLSpanElement {
  const out = document.createElement('span');
  out.className = by;
  out.textContent = text;
  return out;
}

/** The runs, parted at the places too. */
function splitAt(runs: readonly Run[], points: readonly Point[]): Run[] {
  let at = 0;
  return runs.flatMap(({ by, length }) => {
    const end = at + length;
    const edges = [at, ...points.map((point) => point.at).filter((edge) => edge > at && edge < end), end];
    at = end;
    return edges.slice(1).map((edge, ix) => ({ by, length: edge - (edges[ix] ?? 0) }));
  });
}
