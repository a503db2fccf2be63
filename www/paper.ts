/**
 * The text as it is seen: behind the text area, whose letters are clear, lies the same text in the colours of who wrote it, and beside
 * it are the places to go back to. Text that streams in is added behind once a frame, and to the text area when all of it is there.
 */

import type { Draft, Point, Run } from './draft.js';
import { enable } from './elements.js';
import { Lines } from './lines.js';

/** Pixels between two places in the margin that can be told apart. */
const APART = 20;
/** Most characters of a place's name. */
const NAME = 40;

export class Paper {
  readonly #draft: Draft;
  readonly #area: HTMLTextAreaElement;
  readonly #behind: HTMLElement;
  readonly #lines: Lines;
  readonly #margin: HTMLElement;
  readonly #onPoint: (point: Point) => void;
  readonly #onRelease: (point: Point) => void;
  /** What was streamed and is not yet seen. */
  #waiting = '';
  #frame = 0;

  /** `onPoint` hears of a place to go back to, `onRelease` of a mark to give up. */
  constructor(draft: Draft, area: HTMLTextAreaElement, behind: HTMLElement, margin: HTMLElement, onPoint: (point: Point) => void, onRelease: (point: Point) => void) {
    this.#draft = draft;
    this.#area = area;
    this.#behind = behind;
    this.#lines = new Lines(behind);
    this.#margin = margin;
    this.#onPoint = onPoint;
    this.#onRelease = onRelease;
    let width = 0;
    new ResizeObserver(() => {
      if (area.clientWidth !== width) this.#place();
      width = area.clientWidth;
    }).observe(area);
  }

  /** Shows the draft as it is now. */
  show(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#waiting = '';
    const { text, runs, points } = this.#draft;
    if (this.#area.value !== text) this.#area.value = text;
    let at = 0;
    const parts = splitAt(runs, points).map(({ by, length }) => {
      at += length;
      return { kind: by, text: text.slice(at - length, at) };
    });
    this.#lines.set(parts);
    this.#listPoints();
  }

  /** Shows more of the model's text. */
  stream(text: string): void {
    this.#waiting += text;
    if (this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#flush());
  }

  #flush(): void {
    this.#frame = 0;
    const { scrollHeight, scrollTop, clientHeight } = document.documentElement;
    const atEnd = scrollHeight - scrollTop - clientHeight < 60;
    this.#lines.append('fox', this.#waiting);
    this.#waiting = '';
    if (atEnd) document.documentElement.scrollTop = document.documentElement.scrollHeight;
  }

  #listPoints(): void {
    const { text, points } = this.#draft;
    const held = this.#margin.querySelector('button:focus-visible')?.closest('li')?.querySelector('button')?.value;
    const items = points.map((point) => {
      const before = text.slice(Math.max(point.at - NAME, 0), point.at).trim();
      const button = document.createElement('button');
      button.type = 'button';
      button.value = String(point.at);
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
      if (point.marked) item.append(this.#releaser(point, before));
      return item;
    });
    this.#fade(Infinity);
    this.#margin.replaceChildren(...items);
    this.#place();
    if (held !== undefined) this.#hold(held);
  }

  /** Gives a place that is listed anew the focus that it had; one that is gone leaves it to the text. */
  #hold(at: string): void {
    const button = [...this.#margin.querySelectorAll('button')].find(({ value }) => value === at);
    const on = button?.disabled === false;
    if (button !== undefined) button.disabled = false;
    button?.focus();
    if (button === undefined || document.activeElement !== button) this.#area.focus();
    if (button !== undefined) enable(button, on);
  }

  #releaser(point: Point, before: string): HTMLButtonElement {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'release';
    button.ariaLabel = `Give up the mark: … ${before}`;
    button.title = 'Give up this mark: the memory that is kept for it alone is freed';
    button.addEventListener('click', () => this.#onRelease(point));
    return button;
  }

  /** Shows what a way back would cut off. */
  #fade(from: number): void {
    for (const { at, element } of this.#lines.seen()) element.classList.toggle('leaving', at >= from);
  }

  /** Puts the places beside their lines; of several on a line the latest is there, or a marked one. */
  #place(): void {
    const { points } = this.#draft;
    if (points.length === 0) return;
    const top = this.#behind.getBoundingClientRect().top;
    const seen = this.#lines.seen();
    const lines = points.map(({ at }) => {
      // The end of the part before the place: its last box is on the place's line.
      const box = [...(seen.findLast((part) => part.at < at)?.element.getClientRects() ?? [])].at(-1);
      return box === undefined ? 0 : box.top + box.height / 2 - top;
    });
    const items = [...this.#margin.children] as HTMLElement[];
    for (const [ix, item] of items.entries()) {
      const line = lines[ix] ?? 0;
      item.style.top = `${line}px`;
      item.hidden = points.some((point, other) => other !== ix && Math.abs((lines[other] ?? 0) - line) < APART && outranks(point, other, points[ix], ix));
    }
  }
}

function outranks(a: Point, ixA: number, b: Point | undefined, ixB: number): boolean {
  return a.marked === b?.marked ? ixA > ixB : a.marked;
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
