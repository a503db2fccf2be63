/** Beginnings that are offered on an empty page. They are no text of the page until one is taken. */

const OPENINGS = [
  'The old fox stopped at the edge of the wood, and',
  'On the last evening of the summer the three children',
  'It was a strange machine that stood in the',
];

/** Lists them; `onChoice` hears of one that is taken. */
export function startOpenings(section: HTMLElement, onChoice: (opening: string) => void): void {
  section.querySelector('ul')?.replaceChildren(
    ...OPENINGS.map((opening) => {
      const [item, button] = [document.createElement('li'), document.createElement('button')];
      button.type = 'button';
      button.textContent = `${opening} …`;
      button.addEventListener('click', () => onChoice(opening));
      item.append(button);
      return item;
    }),
  );
}
