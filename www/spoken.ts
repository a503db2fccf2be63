/** What is written, for those who listen: whole sentences as they come, in a live region of their own. */

export class Spoken {
  readonly #log: HTMLElement;
  #pending = '';

  constructor(log: HTMLElement) {
    this.#log = log;
  }

  begin(): void {
    this.#log.replaceChildren();
    this.#pending = '';
  }

  add(text: string): void {
    this.#pending += text;
    const end = /^[^]*[.!?]["')\]]*\s/.exec(this.#pending)?.[0].length ?? 0;
    if (end > 0) this.#say(end);
  }

  end(): void {
    this.#say(this.#pending.length);
  }

  #say(n: number): void {
    const said = this.#pending.slice(0, n).trim();
    this.#pending = this.#pending.slice(n);
    if (said === '') return;
    const line = document.createElement('p');
    line.textContent = said;
    this.#log.append(line);
  }
}
