/** The page without the network: its files are kept by a service worker (sw.js), which a build has and the development server has not. */

import { element } from './elements.js';

/** Starts it, and offers a new version of the page when there is one. */
export async function startOffline(): Promise<void> {
  const { serviceWorker } = navigator as { serviceWorker?: ServiceWorkerContainer };
  if (!import.meta.env.PROD || serviceWorker === undefined) return;
  const show = (): void => {
    element('update', HTMLElement).hidden = false;
  };
  let [controlled, wanted] = [serviceWorker.controller !== null, false];
  serviceWorker.addEventListener('controllerchange', () => {
    if (wanted) location.reload();
    // Another tab has taken it: this one goes on with the files that it has, and is told.
    else if (controlled) show();
    controlled = true;
  });
  const registration = await serviceWorker.register('./sw.js').catch(() => undefined); // a page over http, or a browser that keeps nothing
  if (registration === undefined) return;
  const offer = (): void => {
    // The first version of all is none that is new.
    if (registration.waiting !== null && serviceWorker.controller !== null) show();
  };
  registration.addEventListener('updatefound', () => {
    registration.installing?.addEventListener('statechange', offer);
  });
  offer();
  element('take-update', HTMLButtonElement).addEventListener('click', () => {
    wanted = true;
    if (registration.waiting === null) location.reload();
    else registration.waiting.postMessage('take over');
  });
}
