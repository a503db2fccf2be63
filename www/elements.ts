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

/** What was thrown, as a sentence. */
export function sentence(thrown: unknown): string {
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return /[.!?]$/.test(message) ? message : `${message}.`;
}

export function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

/** A press on the backdrop closes a dialog; one on its edge or its scroll bar does not. */
export function closeFromOutside(dialog: HTMLDialogElement): void {
  dialog.addEventListener('pointerdown', ({ target, clientX, clientY }) => {
    const box = dialog.getBoundingClientRect();
    if (target === dialog && (clientX < box.left || clientX > box.right || clientY < box.top || clientY > box.bottom)) dialog.close();
  });
}
