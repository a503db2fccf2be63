/** The page without the network: its files are kept by a service worker (sw.js), which a build has and the development server has not. */

import { element } from './elements.js';

const { serviceWorker } = navigator as { serviceWorker?: ServiceWorkerContainer };

/** Where it cannot come, and a page without it is better than none. */
const MOST_MS = 30_000;

const registration = import.meta.env.PROD ? serviceWorker?.register('./sw.js').catch(() => undefined) : undefined; // over http, or in a browser that keeps nothing

/**
 * Resolved when the service worker has the page, or cannot. A worker is bound by the policy that comes with its script, and a host of files
 * sends none: what is started before could follow a redirect to another host.
 */
export const guarded: Promise<void> = control();

async function control(): Promise<void> {
  const found = await registration;
  if (found === undefined || serviceWorker === undefined || serviceWorker.controller !== null) return;
  // It takes the page when it begins. One that has begun long ago does not, where its reader had the page loaded without it.
  const coming = found.active ?? found.waiting ?? found.installing;
  if (coming === null || coming.state === 'activated') return;
  await new Promise<void>((resolve) => {
    serviceWorker.addEventListener('controllerchange', () => resolve(), { once: true });
    coming.addEventListener('statechange', () => coming.state === 'redundant' && resolve());
    setTimeout(resolve, MOST_MS);
  });
}

/** Starts it, and offers a new version of the page when there is one. */
export async function startOffline(): Promise<void> {
  if (serviceWorker === undefined) return;
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
  const found = await registration;
  if (found === undefined) return;
  const offer = (): void => {
    // The first version of all is none that is new.
    if (found.waiting !== null && serviceWorker.controller !== null) show();
  };
  found.addEventListener('updatefound', () => {
    found.installing?.addEventListener('statechange', offer);
  });
  offer();
  element('take-update', HTMLButtonElement).addEventListener('click', () => {
    wanted = true;
    if (found.waiting === null) location.reload();
    else found.waiting.postMessage('take over');
  });
}
