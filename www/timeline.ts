/**
 * Pages of keys over time: how many are alive after each token, in front of all that were filled. A token is looked from by keys, a press or
 * a drag; the same is there as a sentence and as a table.
 */

import { livePages, type Gates } from 'kitfox';
import type { Sight } from './sight.js';
import { Turns } from './turns.js';

/** Tokens of a page. */
const PAGE = 64;
const SVG = 'http://www.w3.org/2000/svg';

/** Where the parts of the view are. */
export interface Places {
  /** The drawing, a slider. */
  readonly chart: HTMLElement;
  /** The sentence. */
  readonly said: HTMLElement;
  /** The rule by which pages die here. */
  readonly rule: HTMLElement;
  /** The number of tokens below the drawing's end, and of pages beside its top. */
  readonly tokens: HTMLElement;
  readonly pages: HTMLElement;
  readonly table: HTMLTableElement;
}

export class Timeline {
  readonly #places: Places;
  readonly #onChoice: (ix: number) => void;
  readonly #filled = shape('path', 'filled');
  readonly #alive = shape('path', 'alive');
  readonly #here = shape('line', 'now');
  /** By layer and key head: live pages after each token. */
  #live: Uint32Array[][] = [];
  /** Of the sight that is shown, after each token. */
  #sums = new Uint32Array();
  /** Heads that a page is counted of. */
  #columns = 1;
  #at = 0;

  /** `onChoice` hears which token is chosen; it answers with `look`. */
  constructor(places: Places, onChoice: (ix: number) => void) {
    this.#places = places;
    this.#onChoice = onChoice;
    const drawing = shape('svg', '');
    drawing.setAttribute('preserveAspectRatio', 'none');
    drawing.setAttribute('aria-hidden', 'true');
    drawing.append(this.#filled, this.#alive, this.#here);
    places.chart.prepend(drawing);
    places.chart.addEventListener('keydown', (event) => this.#onKey(event));
    places.chart.addEventListener('pointerdown', (event) => this.#onPointer(event));
    places.chart.addEventListener('pointermove', (event) => event.buttons > 0 && this.#onPointer(event));
  }

  /** Shows nothing until there is another text. */
  clear(): void {
    this.#sums = new Uint32Array();
    for (const area of [this.#filled, this.#alive]) area.removeAttribute('d');
    this.#places.said.textContent = '';
    this.#places.table.replaceChildren();
  }

  /** Counts the pages of a text's gates, head by head, unless they are no longer `wanted`. */
  async set(gates: Gates, wanted: () => boolean): Promise<void> {
    const { layers, kvHeads, ids } = gates;
    const turns = new Turns();
    const live: Uint32Array[][] = [];
    for (let layer = 0; layer < layers; layer += 1) {
      const row: Uint32Array[] = [];
      for (let head = 0; head < kvHeads; head += 1) {
        await turns.pause();
        if (!wanted()) return;
        row.push(livePages(gates, layer, head));
      }
      live.push(row);
    }
    this.#live = live;
    this.#places.chart.ariaValueMin = '1';
    this.#places.chart.ariaValueMax = String(ids.length);
    this.#places.rule.textContent = ruleOf(gates);
    this.#places.tokens.textContent = ids.length.toLocaleString('en');
  }

  /** Shows the pages of a sight: of a head that shares its keys, those of all that share them. */
  show(gates: Gates, { layer, head }: Sight): void {
    const n = gates.ids.length;
    const group = gates.heads / gates.kvHeads;
    const rows = layer === undefined ? this.#live : this.#live.slice(layer, layer + 1);
    const heads = rows.flatMap((row) => (head === undefined ? row : row.slice(Math.floor(head / group), Math.floor(head / group) + 1)));
    this.#columns = heads.length;
    this.#sums = new Uint32Array(n);
    for (const one of heads) for (let t = 0; t < n; t += 1) this.#sums[t] = (this.#sums[t] ?? 0) + (one[t] ?? 0);
    const most = Math.max(this.#whole(n - 1), 1);
    this.#filled.setAttribute('d', steps(n, most, (t) => this.#whole(t)));
    this.#alive.setAttribute('d', steps(n, most, (t) => this.#sums[t] ?? 0));
    this.#alive.parentElement?.setAttribute('viewBox', `0 0 ${n} ${most}`);
    this.#places.pages.textContent = most.toLocaleString('en');
    this.#fillTable(n);
    this.look(Math.min(this.#at, n - 1));
  }

  /** Tells how it is after a token. */
  look(ix: number): void {
    this.#at = ix;
    if (this.#sums.length === 0) return;
    const [alive, whole] = [this.#sums[ix] ?? 0, this.#whole(ix)];
    const said = `${alive.toLocaleString('en')} of ${whole.toLocaleString('en')} pages alive`;
    const { chart, said: place } = this.#places;
    place.textContent = `After token ${ix + 1}: ${said}, ${share(alive, whole)}.`;
    chart.ariaValueNow = String(ix + 1);
    chart.ariaValueText = `token ${ix + 1}: ${said}`;
    for (const [end, y] of [['1', '0'], ['2', String(this.#whole(this.#sums.length - 1))]] as const) {
      this.#here.setAttribute(`x${end}`, String(ix + 0.5));
      this.#here.setAttribute(`y${end}`, y);
    }
  }

  /** Pages that are filled after a token. */
  #whole(t: number): number {
    return Math.ceil((t + 1) / PAGE) * this.#columns;
  }

  /** After each page of tokens, and after the last. */
  #fillTable(n: number): void {
    const ends = [...Array(Math.ceil(n / PAGE)).keys()].map((page) => Math.min((page + 1) * PAGE, n) - 1);
    const rows = ends.map((t) => [t + 1, this.#whole(t), this.#sums[t] ?? 0].map((value) => value.toLocaleString('en')).concat(share(this.#sums[t] ?? 0, this.#whole(t))));
    const [head, body] = [document.createElement('thead'), document.createElement('tbody')];
    head.append(line(['Tokens', 'Filled', 'Alive', 'Part'], true));
    body.append(...rows.map((row) => line(row, false)));
    this.#places.table.replaceChildren(head, body);
  }

  #onPointer(event: PointerEvent): void {
    const { left, width } = this.#places.chart.getBoundingClientRect();
    const n = this.#sums.length;
    if (n === 0 || width === 0) return;
    this.#onChoice(Math.min(Math.max(Math.floor(((event.clientX - left) / width) * n), 0), n - 1));
  }

  #onKey(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const last = this.#sums.length - 1;
    const places: Record<string, number> = {
      ArrowLeft: this.#at - 1,
      ArrowDown: this.#at - 1,
      ArrowRight: this.#at + 1,
      ArrowUp: this.#at + 1,
      PageDown: this.#at - PAGE,
      PageUp: this.#at + PAGE,
      Home: 0,
      End: last,
    };
    const place = places[event.key];
    if (place === undefined || last < 0) return;
    event.preventDefault();
    // At once: the next key may come before the answer.
    this.#at = Math.min(Math.max(place, 0), last);
    this.#onChoice(this.#at);
  }
}

function ruleOf({ window, prune, u }: Gates): string {
  if (window !== undefined) return `A page is free once it has left the window of ${window.toLocaleString('en')} tokens.`;
  if (prune === undefined) return 'No page dies here: this model forgets no key for good.';
  if (u === undefined) return 'No page dies here: nothing bounds the scores of this model.';
  return `A page of ${PAGE} keys dies for a head once it and all before it weigh less than ${prune.toExponential(1)} of a token’s attention, for good. Its memory is used again.`;
}

function share(part: number, whole: number): string {
  return `${whole === 0 ? 0 : ((part / whole) * 100).toFixed(0)}\u00a0%`;
}

/** The area below a step function of n tokens, the highest of which is `most`. */
function steps(n: number, most: number, of: (t: number) => number): string {
  let path = `M0 ${most}`;
  let last = -1;
  for (let t = 0; t < n; t += 1) {
    const value = of(t);
    if (value !== last) path += `H${t}V${most - value}`;
    last = value;
  }
  return `${path}H${n}V${most}Z`;
}

function shape<K extends 'svg' | 'path' | 'line'>(name: K, kind: string): SVGElementTagNameMap[K] {
  const out = document.createElementNS(SVG, name) as SVGElementTagNameMap[K];
  if (kind !== '') out.setAttribute('class', kind);
  return out;
}

function line(cells: readonly string[], head: boolean): HTMLTableRowElement {
  const out = document.createElement('tr');
  for (const [ix, text] of cells.entries()) {
    const names = head || ix === 0;
    const cell = document.createElement(names ? 'th' : 'td');
    if (names) cell.setAttribute('scope', head ? 'col' : 'row');
    cell.textContent = text;
    out.append(cell);
  }
  return out;
}
