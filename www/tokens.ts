/**
 * A text as its tokens, one of them the place that is looked from: by pointer for a moment, by keys or a press for longer. What lies before
 * it is shaded, but only where it is in view.
 */

import type { Gates } from 'kitfox';
import { nameOfToken } from './sight.js';
import { Turns } from './turns.js';

/** A text's tokens, and which completes the last character of each. */
type Tokens = Pick<Gates, 'tokens' | 'completedBy'>;

/** Tokens that are shaded together when they come into view. */
const CHUNK = 32;
/** Tokens that are laid out at once. */
const LAID_OUT = 256;

export class TokenText {
  readonly #place: HTMLElement;
  readonly #onLook: (ix: number) => void;
  readonly #observer: IntersectionObserver;
  #text: Tokens = { tokens: [], completedBy: [] };
  #spans: HTMLElement[] = [];
  #indices = new Map<EventTarget, number>();
  #inView = new Set<Element>();
  /** The shade that each token has. */
  #shades: string[] = [];
  #row: Float64Array = new Float64Array();
  #chosen = 0;
  #looked = 0;
  #pointer = '';

  /** `onLook` hears which token is looked from; it answers with `shade`. */
  constructor(place: HTMLElement, onLook: (ix: number) => void) {
    this.#place = place;
    this.#onLook = onLook;
    this.#observer = new IntersectionObserver((entries) => this.#see(entries), { root: place, rootMargin: '50% 0px' });
    place.addEventListener('keydown', (event) => this.#onKey(event));
    place.addEventListener('pointermove', (event) => this.#onMove(event));
    place.addEventListener('pointerleave', () => this.#look(this.#chosen));
    place.addEventListener('click', ({ target }) => {
      const ix = target === null ? undefined : this.#indices.get(target);
      if (ix !== undefined) this.choose(ix);
    });
  }

  /** Shows these tokens, looked at from the last, unless `wanted` says meanwhile that others are. */
  async set(text: Tokens, wanted: () => boolean): Promise<void> {
    const { tokens } = text;
    this.#observer.disconnect();
    this.#place.replaceChildren();
    this.#text = text;
    this.#chosen = this.#looked = tokens.length - 1;
    [this.#spans, this.#shades, this.#indices, this.#inView] = [[], Array<string>(tokens.length).fill(''), new Map(), new Set()];
    this.#row = new Float64Array();
    const turns = new Turns();
    let line: HTMLElement | undefined;
    for (const { first, end, ends } of chunksOf(tokens)) {
      if (first % LAID_OUT < CHUNK) this.#place.scrollTop = 0; // lays out what is there, so that it is not all done at the end
      await turns.pause();
      if (!wanted()) return;
      const chunk = document.createElement('span');
      const spans = tokens.slice(first, end).map((_, ix) => made(text, first + ix));
      for (const [ix, span] of spans.entries()) this.#indices.set(span, first + ix);
      chunk.append(...spans);
      this.#spans.push(...spans);
      if (line === undefined) this.#place.append((line = document.createElement('div')));
      line.append(chunk);
      if (ends) line = undefined;
      this.#observer.observe(chunk);
    }
    this.#place.ariaValueMin = '1';
    this.#place.ariaValueMax = String(tokens.length);
    this.choose(tokens.length - 1);
  }

  /** Looks from a token until another is chosen. */
  choose(ix: number): void {
    const n = this.#text.tokens.length;
    this.#chosen = Math.min(Math.max(ix, 0), n - 1);
    this.#place.ariaValueNow = String(this.#chosen + 1);
    const { words, letters } = nameOfToken(this.#text, this.#chosen);
    this.#place.ariaValueText = `${words}${letters}, ${this.#chosen + 1} of ${n}`;
    this.#show(this.#spans[this.#chosen]);
    this.#look(this.#chosen, true);
  }

  /** Shades what the row's last token sees: row[j] of each token j. */
  shade(row: Float64Array): void {
    this.#row = row;
    for (const chunk of this.#inView) this.#paint(chunk);
  }

  #look(ix: number, again = false): void {
    if (ix === this.#looked && !again) return;
    this.#looked = ix;
    this.#onLook(ix);
  }

  /** Scrolls the text alone: what is around it stays where it is. */
  #show(span: HTMLElement | undefined): void {
    if (span === undefined) return;
    const [view, box] = [this.#place.getBoundingClientRect(), span.getBoundingClientRect()];
    const above = box.top - view.top - box.height;
    const below = box.bottom - view.bottom + box.height;
    if (above < 0) this.#place.scrollTop += above;
    else if (below > 0) this.#place.scrollTop += below;
  }

  #see(entries: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.#inView.add(target);
      else this.#inView.delete(target);
      if (isIntersecting) this.#paint(target);
    }
  }

  #paint(chunk: Element): void {
    const here = this.#row.length - 1;
    for (const child of chunk.children) {
      const ix = this.#indices.get(child) ?? 0;
      const span = child as HTMLElement;
      const kind = ix === here ? 'here' : ix > here ? 'later' : '';
      const shade = ix > here ? '' : (this.#row[ix] ?? 0).toFixed(3);
      // What stays as it is costs the browser nothing.
      if (span.className !== kind) span.className = kind;
      if (shade !== this.#shades[ix]) span.style.setProperty('--f', shade);
      this.#shades[ix] = shade;
    }
  }

  #onMove({ target, clientX, clientY }: PointerEvent): void {
    // The text that moves under a resting pointer is no move of the pointer.
    const pointer = `${clientX} ${clientY}`;
    if (pointer === this.#pointer) return;
    this.#pointer = pointer;
    const ix = target === null ? undefined : this.#indices.get(target);
    if (ix !== undefined) this.#look(ix);
  }

  #onKey(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const steps: Record<string, () => number> = {
      ArrowLeft: () => this.#chosen - 1,
      ArrowRight: () => this.#chosen + 1,
      ArrowUp: () => this.#onLine(-1),
      ArrowDown: () => this.#onLine(1),
      PageUp: () => this.#chosen - CHUNK,
      PageDown: () => this.#chosen + CHUNK,
      Home: () => 0,
      End: () => this.#text.tokens.length - 1,
    };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.choose(step());
  }

  /** The token above or below the chosen one, in the line next to it. */
  #onLine(way: 1 | -1): number {
    const boxOf = (ix: number): DOMRect | undefined => this.#spans[ix]?.getClientRects()[0];
    const from = boxOf(this.#chosen);
    if (from === undefined) return this.#chosen;
    let line: number | undefined;
    let best = this.#chosen;
    let least = Infinity;
    for (let ix = this.#chosen + way; ; ix += way) {
      const box = boxOf(ix);
      if (box === undefined) break;
      const apart = (box.top - from.top) * way;
      if (apart < from.height / 2) continue;
      line ??= apart;
      if (apart > line + from.height / 2) break;
      const far = Math.abs(box.left - from.left);
      if (far < least) [best, least] = [ix, far];
    }
    return best;
  }
}

/** The tokens in chunks, none beyond the end of a line: a line is a block, so that one more is laid out without those before it. */
function* chunksOf(tokens: readonly string[]): Iterable<{ readonly first: number; readonly end: number; readonly ends: boolean }> {
  let first = 0;
  for (const [ix, token] of tokens.entries()) {
    const ends = token.endsWith('\n');
    if (!ends && ix + 1 - first < CHUNK && ix + 1 < tokens.length) continue;
    yield { first, end: ix + 1, ends };
    first = ix + 1;
  }
}

function made({ tokens, completedBy }: Tokens, ix: number): HTMLElement {
  const token = tokens[ix] ?? '';
  const span = document.createElement('span');
  span.textContent = token;
  // What has no letters has a sign, to be pointed at; a part of a character is a strip in front of it.
  if (token === '' && completedBy[ix] !== ix) span.dataset['part'] = '';
  else if (token === '') span.dataset['sign'] = '·';
  else if (token.startsWith('\n')) span.dataset['sign'] = '¶';
  return span;
}
