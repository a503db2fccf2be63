/** What both pages do with their elements. */

/** The element of an id; a page without it is broken. */
export function element<T extends HTMLElement>(id: string, kind: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`${location.pathname} has no ${kind.name} #${id}`);
  return found;
}

/** Shows a message, or hides its place. */
export function tell(where: HTMLElement, message?: string): void {
  where.textContent = message ?? '';
  where.hidden = message === undefined;
}

/**
 * Whether a button can be pressed. One that was reached by key keeps the focus: it is said to be out of use, and a press does nothing
 * (`guardButtons`).
 */
export function enable(button: HTMLButtonElement, on: boolean): void {
  const stays = !on && button.matches(':focus-visible');
  button.disabled = !on && !stays;
  button.ariaDisabled = stays ? 'true' : null;
}

export function isEnabled(button: HTMLButtonElement): boolean {
  return !button.disabled && button.ariaDisabled !== 'true';
}

/** For all of the page's buttons. */
export function guardButtons(): void {
  const isOut = (target: unknown): target is HTMLButtonElement => target instanceof HTMLButtonElement && target.ariaDisabled === 'true';
  const stop = (event: Event): void => {
    if (!isOut((event.target as Element).closest('button'))) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  document.addEventListener('click', stop, { capture: true });
  document.addEventListener('focusout', ({ target }) => {
    if (!isOut(target)) return;
    target.disabled = true;
    target.ariaDisabled = null;
  });
}

/** What was thrown, as a sentence. */
export function sentence(thrown: unknown): string {
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return /[.!?]$/.test(message) ? message : `${message}.`;
}

export function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

/** Says of a dialog, by its class `cut`, whether there is more of it below what is seen: its last child, `.end`, is not in view. */
export function tellCut(dialog: HTMLDialogElement): void {
  const end = dialog.querySelector(':scope > .end');
  const tell = ([entry]: IntersectionObserverEntry[]): boolean => dialog.classList.toggle('cut', entry?.isIntersecting === false && dialog.open);
  if (end !== null) new IntersectionObserver(tell, { root: dialog, rootMargin: '0px 0px -24px 0px' }).observe(end);
}

/** A press on the backdrop closes a dialog; one on its edge or its scroll bar does not. */
export function closeFromOutside(dialog: HTMLDialogElement): void {
  dialog.addEventListener('pointerdown', ({ target, clientX, clientY }) => {
    const box = dialog.getBoundingClientRect();
    if (target === dialog && (clientX < box.left || clientX > box.right || clientY < box.top || clientY > box.bottom)) dialog.close();
  });
}
