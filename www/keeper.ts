/**
 * The text, kept for a reload of the tab, with what can be put back. What the browser has no room for is told, and then the browser asks
 * whether the page is really to be left.
 */

import type { Draft } from './draft.js';

const TEXT = 'kitfox draft';
const ASIDE = 'kitfox draft aside';

export class Keeper {
  readonly #draft: Draft;
  readonly #tell: (problem?: string) => void;
  /** What was last kept of what can be put back. */
  #aside: string | undefined;
  #problem: string | undefined;

  /** `tell` hears what is not kept, and without words that all is. */
  constructor(draft: Draft, tell: (problem?: string) => void) {
    this.#draft = draft;
    this.#tell = tell;
  }

  /** From here on it is also kept when the page is hidden or left: in the middle of an answer. */
  start(): void {
    addEventListener('pagehide', () => this.keep());
    document.addEventListener('visibilitychange', () => document.hidden && this.keep());
  }

  keep(): void {
    const text = this.#keepText();
    const saved = this.#draft.saveAside();
    if (saved !== this.#aside) this.#aside = put(ASIDE, saved) ? saved : drop(ASIDE);
    this.#lament(!text ? 'The browser does not keep this text' : this.#aside === undefined ? 'The browser does not keep what Undo and Redo would bring back' : undefined);
  }

  /** The text comes first: what can be put back makes room for it. */
  #keepText(): boolean {
    const text = this.#draft.save();
    if (put(TEXT, text)) return true;
    this.#aside = drop(ASIDE);
    return put(TEXT, text);
  }

  #lament(problem: string | undefined): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.#tell(problem && `${problem}: it is too long, or nothing may be kept. A reload of this page, or leaving it, loses it. Copy it first.`);
    const change = problem === undefined ? removeEventListener : addEventListener;
    change('beforeunload', ask);
  }

  /** Puts what was kept into the draft. Whether there was anything. */
  recall(): boolean {
    try {
      const [text, aside] = [sessionStorage.getItem(TEXT), sessionStorage.getItem(ASIDE)];
      if (text === null || !this.#draft.restore(text)) return false;
      if (aside !== null) this.#draft.restoreAside(aside);
      return true;
    } catch {
      return false;
    }
  }
}

const ask = (event: BeforeUnloadEvent): void => event.preventDefault();

/** Whether it is kept. */
function put(name: string, value: string): boolean {
  try {
    sessionStorage.setItem(name, value);
    return true;
  } catch {
    return false; // no room, or a browser that keeps nothing for pages
  }
}

function drop(name: string): undefined {
  try {
    sessionStorage.removeItem(name);
  } catch {
    // A browser that keeps nothing for pages.
  }
}
