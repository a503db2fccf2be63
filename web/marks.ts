/** Which places of which sessions are marked, as far as the page was told: an aborted `mark` is taken back only where none was before. */

export class Marks {
  readonly #of = new Map<number, Set<number>>();

  has(session: number, tokens: number): boolean {
    return this.#of.get(session)?.has(tokens) === true;
  }

  put(session: number, tokens: number): void {
    this.#of.set(session, (this.#of.get(session) ?? new Set()).add(tokens));
  }

  drop(session: number, tokens: number): void {
    this.#of.get(session)?.delete(tokens);
  }

  /** Those of the session's first so many tokens are left; none of −1. */
  keep(session: number, tokens: number): void {
    const left = [...(this.#of.get(session) ?? [])].filter((mark) => mark <= tokens);
    if (left.length === 0) this.#of.delete(session);
    else this.#of.set(session, new Set(left));
  }
}
