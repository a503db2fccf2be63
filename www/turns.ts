/** Long work of the page's own thread in short tasks, so that keys and pointer are heard in between. */

/** Milliseconds of one task. */
const MOST_MS = 8;

export class Turns {
  #began = performance.now();

  /** Lets others have the thread, if this work had it for long. */
  async pause(): Promise<void> {
    if (performance.now() - this.#began >= MOST_MS) await this.next();
  }

  /** Lets others have the thread in any case. */
  async next(): Promise<void> {
    await new Promise((go) => setTimeout(go));
    this.#began = performance.now();
  }
}
