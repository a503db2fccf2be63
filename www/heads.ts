/** Layers × heads as a heat map of numbers: how far back each head sees. A cell, a layer or all of them is chosen by a press. */

import { count, type Sight } from './sight.js';

export class HeadMap {
  readonly #table: HTMLTableElement;
  readonly #onChoice: (sight: Sight) => void;
  /** The buttons as the keys go through them: all, then of each layer itself and its heads. */
  #rows: HTMLButtonElement[][] = [];
  #sights = new Map<HTMLButtonElement, Sight>();

  constructor(table: HTMLTableElement, onChoice: (sight: Sight) => void) {
    this.#table = table;
    this.#onChoice = onChoice;
    table.addEventListener('click', ({ target }) => {
      const button = target instanceof Element ? target.closest('button') : null;
      if (button !== null) this.#choose(button);
    });
    table.addEventListener('keydown', (event) => this.#onKey(event));
  }

  /** Shows the effective context of each layer's heads, of at most `most` tokens; a shade goes by its logarithm. */
  set(contexts: readonly (readonly number[])[], most: number, chosen: Sight): void {
    const heads = contexts[0]?.length ?? 0;
    this.#sights.clear();
    const all = this.#button('All', {}, 'All heads of the model');
    this.#rows = [[all]];
    const top = document.createElement('tr');
    top.append(cell('th', all), ...[...Array(heads).keys()].map((head) => columnHead(head)));
    const lines = contexts.map((row, layer) => {
      const buttons = [this.#button(`Layer ${layer}`, { layer }), ...row.map((tokens, head) => this.#cell({ layer, head }, tokens, most))];
      this.#rows.push(buttons);
      const line = document.createElement('tr');
      line.append(...buttons.map((button, ix) => cell(ix === 0 ? 'th' : 'td', button)));
      return line;
    });
    const [header, body] = [document.createElement('thead'), document.createElement('tbody')];
    header.append(top);
    body.append(...lines);
    this.#table.replaceChildren(header, body);
    const { layer, head } = chosen;
    this.#mark((layer === undefined ? all : this.#rows[layer + 1]?.[head === undefined ? 0 : head + 1]) ?? all);
  }

  #cell(sight: Required<Sight>, tokens: number, most: number): HTMLButtonElement {
    const button = this.#button(count(tokens), sight, `Layer ${sight.layer}, head ${sight.head}: ${count(tokens)} tokens`);
    button.style.setProperty('--heat', (most > 1 ? Math.log(Math.max(tokens, 1)) / Math.log(most) : 0).toFixed(3));
    return button;
  }

  #button(text: string, sight: Sight, label?: string): HTMLButtonElement {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = text;
    button.tabIndex = -1;
    button.ariaPressed = 'false';
    if (label !== undefined) button.ariaLabel = label;
    this.#sights.set(button, sight);
    return button;
  }

  #choose(button: HTMLButtonElement): void {
    const sight = this.#sights.get(button);
    if (sight === undefined) return;
    this.#mark(button);
    this.#onChoice(sight);
  }

  #mark(chosen: HTMLButtonElement): void {
    for (const button of this.#sights.keys()) {
      button.ariaPressed = String(button === chosen);
      button.tabIndex = button === chosen ? 0 : -1;
    }
  }

  #onKey(event: KeyboardEvent): void {
    const button = event.target instanceof HTMLButtonElement ? event.target : undefined;
    const row = this.#rows.findIndex((buttons) => button !== undefined && buttons.includes(button));
    const column = this.#rows[row]?.findIndex((one) => one === button) ?? 0;
    const last = this.#rows[row]?.length ?? 1;
    const places: Record<string, [number, number]> = {
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      Home: [row, 0],
      End: [row, last - 1],
    };
    const place = places[event.key];
    if (row < 0 || place === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const buttons = this.#rows[place[0]];
    const next = buttons?.[Math.min(place[1], buttons.length - 1)];
    if (next === undefined) return;
    for (const one of this.#sights.keys()) one.tabIndex = one === next ? 0 : -1;
    next.focus();
  }
}

function cell(kind: 'td' | 'th', button: HTMLButtonElement): HTMLElement {
  const out = document.createElement(kind);
  if (kind === 'th') out.setAttribute('scope', 'row');
  out.append(button);
  return out;
}

function columnHead(head: number): HTMLElement {
  const out = document.createElement('th');
  out.scope = 'col';
  const word = document.createElement('span');
  word.className = 'unseen';
  word.textContent = 'Head ';
  out.append(word, String(head));
  return out;
}
