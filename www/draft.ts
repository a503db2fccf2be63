/**
 * The text on the desk as plain data: who wrote what, the places to go back to, and what was taken back. No page in sight.
 *
 * Places are lengths, so going back to one is cutting the text off there. What is cut off can be put back until something else is written;
 * a page that a new one was begun for, ever after.
 */

/** Who wrote it. */
export type Hand = 'you' | 'fox';

/** So many characters by one hand. */
export interface Run {
  readonly by: Hand;
  readonly length: number;
}

/** A place to go back to: the text's first so many characters. */
export interface Point {
  readonly at: number;
  /** Whether it was marked: the model keeps its pages, so the way back needs no reading. */
  readonly marked: boolean;
}

/** All that there is at one moment. */
interface State {
  readonly text: string;
  readonly runs: readonly Run[];
  readonly points: readonly Point[];
  /** Of what was left: whether it is another page than the one that is there then. */
  readonly apart?: boolean;
}

const EMPTY: State = { text: '', runs: [], points: [] };

export class Draft {
  #now = EMPTY;
  /** States that going back has left, the latest last. */
  #left: readonly State[] = [];
  /** Whole pages that a new one was begun for, the latest last. */
  #pages: readonly State[] = [];
  /** What was saved of both. */
  #aside: { left: readonly State[]; pages: readonly State[]; saved: string } = { left: this.#left, pages: this.#pages, saved: '[[],[]]' };
  /** Whether the last change was no typing: then the key of undo is ours and not the browser's. */
  #ours = false;

  get text(): string {
    return this.#now.text;
  }

  get runs(): readonly Run[] {
    return this.#now.runs;
  }

  get points(): readonly Point[] {
    return this.#now.points;
  }

  get ours(): boolean {
    // On an empty page the browser has nothing left to take back but what is to stay.
    return this.#ours || (this.text === '' && this.#pages.length > 0);
  }

  /** Whether there is a place before, or else a page. */
  get canUndo(): boolean {
    return this.before !== undefined || this.#pages.length > 0;
  }

  get canRedo(): boolean {
    return this.#left.length > 0;
  }

  /** Whether the end is a marked place. */
  get marked(): boolean {
    return this.points.some(({ at, marked }) => marked && at === this.text.length);
  }

  /** The place that `undo` goes back to, if there is one. */
  get before(): Point | undefined {
    return this.points.findLast(({ at }) => at < this.text.length);
  }

  /** The text, as `restore` takes it. */
  save(): string {
    return JSON.stringify(this.#now);
  }

  /** What can be put back, as `restoreAside` takes it. The same string as long as it is the same. */
  saveAside(): string {
    const { left, pages } = this.#aside;
    if (left !== this.#left || pages !== this.#pages) {
      // A page is kept once.
      const left = this.#left.filter(({ text }) => !this.#pages.some((page) => page.text === text));
      this.#aside = { left: this.#left, pages: this.#pages, saved: JSON.stringify([left, this.#pages]) };
    }
    return this.#aside.saved;
  }

  /** Puts what was saved in its place; nothing is marked then. Whether it was such a text. */
  restore(saved: string): boolean {
    const state: unknown = JSON.parse(saved);
    if (!isState(state)) return false;
    this.#now = state;
    this.unmark();
    return true;
  }

  /** The same for what can be put back. */
  restoreAside(saved: string): boolean {
    const aside: unknown = JSON.parse(saved);
    if (!Array.isArray(aside) || aside.length !== 2 || !aside.every((states) => Array.isArray(states) && states.every(isState))) return false;
    [this.#left, this.#pages] = aside as [State[], State[]];
    this.unmark();
    return true;
  }

  /** Takes over what a person has made of the text. Places behind the first change are gone. Whether there was a change. */
  edit(text: string): boolean {
    const { text: old, runs, points } = this.#now;
    if (text === old) return false;
    const front = commonStart(old, text);
    const most = Math.min(old.length, text.length) - front;
    const back = commonEnd(old, text, most);
    const typed: Run = { by: 'you', length: text.length - front - back };
    this.#now = {
      text,
      runs: joined([...cut(runs, 0, front), typed, ...cut(runs, old.length - back, old.length)]),
      points: points.filter(({ at }) => at <= front),
    };
    this.#forgetLeft();
    this.#ours = false;
    return true;
  }

  /** The model's next words. */
  write(text: string): void {
    const { text: old, runs, points } = this.#now;
    this.#now = { text: old + text, runs: joined([...runs, { by: 'fox', length: text.length }]), points };
    this.#forgetLeft();
    this.#ours = true;
  }

  /** Makes the end a place to go back to. */
  point(marked = false): void {
    const at = this.text.length;
    if (at === 0) return;
    const known = this.points.some((point) => point.at === at && point.marked);
    const points = [...this.points.filter((point) => point.at !== at), { at, marked: marked || known }];
    this.#now = { ...this.#now, points };
  }

  /** Goes back to the text's first so many characters. */
  backTo(at: number): void {
    if (at >= this.text.length) return;
    this.#left = [...this.#left, this.#now];
    const { text, runs, points } = this.#now;
    this.#now = { text: text.slice(0, at), runs: cut(runs, 0, at), points: points.filter((point) => point.at <= at) };
    this.#ours = true;
  }

  /** Begins a new page. Both `undo` and `redo` bring this one back. */
  clear(): void {
    if (this.text === '') return;
    this.#pages = [...this.#pages, this.#now];
    this.backTo(0);
  }

  /** Goes back to the place before the end, or else to the page before this one. Whether there was any. */
  undo(): boolean {
    const { before } = this;
    if (before === undefined) return this.#turnBack();
    this.backTo(before.at);
    return true;
  }

  #turnBack(): boolean {
    const page = this.#pages.at(-1);
    if (page === undefined) return false;
    this.#pages = this.#pages.slice(0, -1);
    // As long as nothing was written it is among what was left, and its marks are good.
    const untouched = this.#left.find(({ text }) => text === page.text);
    this.#left = this.#left.filter(({ text }) => text !== page.text);
    if (this.text !== '') this.#left = [...this.#left, { ...unmarked(this.#now), apart: true }];
    this.#now = untouched ?? unmarked(page);
    this.#ours = true;
    return true;
  }

  /** What was left is gone when something is written. */
  #forgetLeft(): void {
    if (this.#left.length > 0) this.#left = [];
  }

  /** Keeps what is there for `redo`, whatever is written in its place until the function that this gives is called. */
  putBy(): () => void {
    const state = this.#now;
    return () => {
      if (state.text !== this.text && this.#left.at(-1) !== state) this.#left = [...this.#left, unmarked(state, commonStart(state.text, this.text))];
    };
  }

  /** Puts back what the last way back has cut off, or what was put by; that takes turns with what is there. Whether there was any. */
  redo(): boolean {
    const left = this.#left.at(-1);
    if (left === undefined) return false;
    this.#left = this.#left.slice(0, -1);
    const common = commonStart(left.text, this.text);
    if (left.apart === true) this.#pages = [...this.#pages, this.#now];
    else if (common < this.text.length) this.#left = [...this.#left, unmarked(this.#now, common)];
    if (this.#pages.at(-1)?.text === left.text) this.#pages = this.#pages.slice(0, -1);
    const { text, runs, points } = left;
    this.#now = { text, runs, points };
    this.#ours = true;
    return true;
  }

  /** A place is marked no longer, here and in what can be put back. */
  release(at: number): void {
    const plain = (state: State): State => ({ ...state, points: state.points.map((point) => (point.at === at ? { at, marked: false } : point)) });
    this.#now = plain(this.#now);
    this.#left = this.#left.map(plain);
  }

  /** Forgets which places are marked: the model that kept them is gone. */
  unmark(): void {
    this.#now = unmarked(this.#now);
    this.#left = this.#left.map((state) => unmarked(state));
    this.#pages = this.#pages.map((state) => unmarked(state));
  }
}

/** A state without the marks behind so many characters: the model gives them up when it reads another text from there. */
function unmarked(state: State, from = 0): State {
  return { ...state, points: state.points.map(({ at, marked }) => ({ at, marked: marked && at <= from })) };
}

function isState(value: unknown): value is State {
  const { text, runs, points } = (value ?? {}) as Partial<Record<keyof State, unknown>>;
  if (typeof text !== 'string' || !Array.isArray(runs) || !Array.isArray(points)) return false;
  const covered = (runs as Run[]).reduce((sum, run) => sum + (run?.length > 0 && (run.by === 'you' || run.by === 'fox') ? run.length : NaN), 0);
  return covered === text.length && (points as Point[]).every((point) => point?.at >= 0 && point.at <= text.length);
}

const isLow = (text: string, at: number): boolean => /^[\uDC00-\uDFFF]$/.test(text.charAt(at));

/** How many characters two texts have in common at their start, whole ones. */
export function commonStart(a: string, b: string): number {
  const most = Math.min(a.length, b.length);
  let n = 0;
  while (n < most && a.charCodeAt(n) === b.charCodeAt(n)) n += 1;
  return n > 0 && (isLow(a, n) || isLow(b, n)) ? n - 1 : n;
}

function commonEnd(a: string, b: string, most: number): number {
  let n = 0;
  while (n < most && a.charCodeAt(a.length - 1 - n) === b.charCodeAt(b.length - 1 - n)) n += 1;
  return n > 0 && isLow(a, a.length - n) ? n - 1 : n;
}

/** The runs of the characters from `start` to `end`. */
function cut(runs: readonly Run[], start: number, end: number): Run[] {
  let at = 0;
  return runs.flatMap(({ by, length }) => {
    const [from, to] = [Math.max(at, start), Math.min(at + length, end)];
    at += length;
    return to > from ? [{ by, length: to - from }] : [];
  });
}

/** Runs of one hand that meet are one; none is empty. */
function joined(runs: readonly Run[]): Run[] {
  const out: Run[] = [];
  for (const run of runs) {
    const last = out.at(-1);
    if (run.length === 0) continue;
    if (last?.by === run.by) out[out.length - 1] = { by: run.by, length: last.length + run.length };
    else out.push(run);
  }
  return out;
}
