/** How the model writes: presets, the numbers behind them, and the seed. */

import type { DeviceChoice, GenerateOptions } from 'kitfox';
import { element, enable } from './elements.js';

type Numbers = Readonly<Record<'temperature' | 'topK' | 'topP' | 'minP', number>>;

const PRESETS: Readonly<Record<string, { numbers: Numbers; about: string }>> = {
  steady: { numbers: { temperature: 0.6, topK: 40, topP: 0.95, minP: 0.08 }, about: 'Keeps to what is likely: calm, seldom surprising.' },
  natural: { numbers: { temperature: 0.8, topK: 40, topP: 1, minP: 0.05 }, about: 'Varied, and seldom lost.' },
  wild: { numbers: { temperature: 1.15, topK: 0, topP: 1, minP: 0.04 }, about: 'Takes unlikely turns, and loses the thread at times.' },
  likeliest: { numbers: { temperature: 0, topK: 40, topP: 1, minP: 0.05 }, about: 'Always the likeliest word: the same text every time, and soon in circles.' },
};
const OWN = 'Your own numbers. A top-k of 0 and a top-p of 1 leave nothing out; the repeat penalty is 1.1, and 1 at temperature 0, unless you set it.';
const NAMES = ['temperature', 'topK', 'topP', 'minP'] as const;

const input = (id: string): HTMLInputElement => element(id, HTMLInputElement);
const presets = element('presets', HTMLFieldSetElement);
const manner = element('manner', HTMLParagraphElement);
const keepSeed = element('keep-seed', HTMLButtonElement);
const details = element('settings', HTMLDetailsElement);

export const device = element('device', HTMLSelectElement);
/** The devices that can be asked for. */
export const devices: readonly string[] = [...device.options].map(({ value }) => value);

let lastSeed: number | undefined;

/** Ties presets and numbers together; `onDevice` hears of another device. */
export function startSettings(onDevice: () => void): void {
  presets.addEventListener('change', ({ target }) => {
    const preset = PRESETS[(target as HTMLInputElement).value];
    for (const name of NAMES) if (preset !== undefined) input(name).value = String(preset.numbers[name]);
    if (preset !== undefined) input('repeatPenalty').value = '';
    tellPreset();
  });
  for (const name of [...NAMES, 'repeatPenalty']) input(name).addEventListener('input', tellPreset);
  device.addEventListener('change', onDevice);
  keepSeed.addEventListener('click', () => {
    const kept = input('seed').value !== '';
    input('seed').value = kept ? '' : String(lastSeed ?? '');
    tellSeed();
  });
  input('seed').addEventListener('input', tellSeed);
  // A panel over the page: a press outside of it, or Escape in it, closes it.
  document.addEventListener('pointerdown', ({ target }) => {
    if (!details.contains(target as Node)) details.open = false;
  });
  details.addEventListener('keydown', (event) => {
    // A field's Enter would press the form's button, which writes: only with Ctrl is that meant.
    if (event.key === 'Enter' && event.target instanceof HTMLInputElement && !event.ctrlKey && !event.metaKey) event.preventDefault();
    if (event.key !== 'Escape' || !details.open) return;
    event.stopPropagation();
    details.open = false;
    details.querySelector('summary')?.focus();
  });
  tellPreset();
}

/** What the fields say now. */
export function settings(): GenerateOptions {
  const value = (id: string): number => input(id).valueAsNumber;
  const optional = (id: 'seed' | 'repeatPenalty') => (input(id).value === '' ? {} : { [id]: value(id) });
  return {
    temperature: value('temperature'),
    topK: value('topK'),
    topP: value('topP'),
    minP: value('minP'),
    maxTokens: value('maxTokens'),
    ...optional('repeatPenalty'),
    ...optional('seed'),
  };
}

export function chosenDevice(): DeviceChoice {
  return device.value as DeviceChoice;
}

/** Takes note of the seed that was used. */
export function noteSeed(seed: number): void {
  lastSeed = seed;
  tellSeed();
}

function tellSeed(): void {
  const kept = input('seed').value !== '';
  enable(keepSeed, kept || lastSeed !== undefined);
  keepSeed.textContent = kept ? 'A new seed each time' : lastSeed === undefined ? 'Keep the last seed' : `Keep the last seed, ${lastSeed}`;
}

function tellPreset(): void {
  const is = ({ numbers }: { numbers: Numbers }): boolean => NAMES.every((name) => input(name).valueAsNumber === numbers[name]) && input('repeatPenalty').value === '';
  const wanted = presets.querySelector<HTMLInputElement>('input:checked')?.value;
  const matching = Object.entries(PRESETS).find(([, preset]) => is(preset))?.[0];
  // Who chose "own" stays there: the numbers are a preset's until they are changed.
  const name = document.activeElement instanceof HTMLInputElement && document.activeElement.value === 'own' && wanted === 'own' ? 'own' : (matching ?? 'own');
  const radio = presets.querySelector<HTMLInputElement>(`input[value="${name}"]`);
  if (radio !== null) radio.checked = true;
  manner.textContent = PRESETS[name]?.about ?? OWN;
}
