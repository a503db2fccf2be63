/**
 * The coloured text: a block a line, so that a change is laid out anew where it is and not in all the text. A line's block holds the end of
 * the line too, so that the blocks' text together is the text.
 */

/** So much text of one colour, in one piece. */
export interface Part {
  readonly kind: string;
  readonly text: string;
}

/** A part as it is seen: where it begins in the text. */
export interface Seen {
  readonly at: number;
  readonly element: HTMLElement;
}

interface Line {
  readonly block: HTMLElement;
  parts: readonly Part[];
}

export class Lines {
  readonly #place: HTMLElement;
  #lines: Line[] = [];

  constructor(place: HTMLElement) {
    this.#place = place;
    this.set([]);
  }

  /** Shows these parts; lines at the start and the end that stay as they are are left alone. */
  set(parts: readonly Part[]): void {
    const [old, wanted] = [this.#lines, linesOf(parts)];
    const most = Math.min(old.length, wanted.length);
    let front = 0;
    while (front < most && same(old[front]?.parts, wanted[front])) front += 1;
    let back = 0;
    while (back < most - front && same(old[old.length - 1 - back]?.parts, wanted[wanted.length - 1 - back])) back += 1;
    const fresh = wanted.slice(front, wanted.length - back).map(made);
    const behind = old[old.length - back]?.block ?? null;
    for (const { block } of old.slice(front, old.length - back)) block.remove();
    for (const { block } of fresh) this.#place.insertBefore(block, behind);
    this.#lines = [...old.slice(0, front), ...fresh, ...old.slice(old.length - back)];
  }

  /** Adds more of one kind. */
  append(kind: string, text: string): void {
    for (const [ix, part] of linesOf([{ kind, text }]).entries()) {
      const line = ix === 0 ? this.#lines.at(-1) : undefined;
      const [more] = part;
      if (line === undefined) {
        const next = made(part);
        this.#lines.push(next);
        this.#place.append(next.block);
      } else if (more !== undefined) extend(line, more);
    }
  }

  /** The parts that are seen, in order. */
  seen(): Seen[] {
    let at = 0;
    return this.#lines.flatMap(({ block, parts }) =>
      parts.map(({ text }, ix) => {
        const seen = { at, element: block.children[ix] as HTMLElement };
        at += text.length;
        return seen;
      }),
    );
  }
}

function extend(line: Line, more: Part): void {
  const last = line.parts.at(-1);
  const letters = line.block.lastElementChild?.firstChild;
  if (last?.kind === more.kind && letters instanceof Text) {
    letters.appendData(more.text);
    line.parts = [...line.parts.slice(0, -1), { kind: more.kind, text: last.text + more.text }];
  } else {
    line.block.append(span(more));
    line.parts = [...line.parts, more];
  }
}

/** The parts line by line, at least one; each line but the last ends with its line end. */
function linesOf(parts: readonly Part[]): Part[][] {
  const lines: Part[][] = [[]];
  for (const { kind, text } of parts) {
    for (const piece of text.match(/[^\n]*\n|[^\n]+/g) ?? []) {
      lines.at(-1)?.push({ kind, text: piece });
      if (piece.endsWith('\n')) lines.push([]);
    }
  }
  return lines;
}

function same(a: readonly Part[] | undefined, b: readonly Part[] | undefined): boolean {
  return a?.length === b?.length && (a ?? []).every(({ kind, text }, ix) => kind === b?.[ix]?.kind && text === b[ix].text);
}

function made(parts: readonly Part[]): Line {
  const block = document.createElement('div');
  block.append(...parts.map(span));
  return { block, parts };
}

function span({ kind, text }: Part): HTMLSpanElement {
  const out = document.createElement('span');
  out.className = kind;
  out.textContent = text;
  return out;
}
