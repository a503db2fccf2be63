/**
 * The view of what the model forgets in the text on the desk: the text as a token sees it, and how far back each head sees. The gates are
 * read once a text.
 */

import { KitfoxError, effectiveContext, type Gates, type Kitfox, type KitfoxErrorCode, type PrefillProgress } from 'kitfox';
import { closeFromOutside, element, sentence, tell } from './elements.js';
import { HeadMap } from './heads.js';
import { count, forgetsNothing, leftBehind, nameOf, nameOfToken, percent, rowOf, type Sight } from './sight.js';
import { TokenText } from './tokens.js';
import { Turns } from './turns.js';

const dialog = element('forgets', HTMLDialogElement);
const reading = element('forgets-reading', HTMLDivElement);
const progress = element('forgets-progress', HTMLProgressElement);
const progressLabel = element('forgets-progress-label', HTMLLabelElement);
const problem = element('forgets-problem', HTMLParagraphElement);
const view = element('forgets-view', HTMLDivElement);
const place = element('tokens', HTMLDivElement);
const seen = element('seen', HTMLParagraphElement);
const left = element('left', HTMLDListElement);
const most = element('reach-most', HTMLSpanElement);

/** What is wholly there for the next opening. */
let shown: { readonly fox: Kitfox; readonly text: string; readonly gates: Gates } | undefined;
/** The gates on view, and who looks from which token. */
let seenBy: Gates | undefined;
let sight: Sight = {};
let at = 0;
/** The drawing under way; an older one ends when it sees another number. */
let drawing = 0;
let ends: AbortController | undefined;

const tokens = new TokenText(place, (ix) => {
  at = ix;
  void draw();
});
const map = new HeadMap(element('reach', HTMLTableElement), (chosen) => {
  sight = chosen;
  void draw();
});

// The event comes a little later: by then the view may be open again, for another text.
dialog.addEventListener('close', () => dialog.open || ends?.abort());
closeFromOutside(dialog);

/** Opens the view for a text. Gives the code of what went wrong, which is told in it. */
export async function openForgets(fox: Kitfox, text: string): Promise<KitfoxErrorCode | undefined> {
  ends?.abort();
  const mine = (ends = new AbortController());
  tell(problem);
  dialog.showModal();
  if (shown?.fox === fox && shown.text === text) {
    place.focus();
    return undefined;
  }
  shown = undefined;
  view.hidden = true;
  reading.hidden = false;
  progress.removeAttribute('value');
  progressLabel.textContent = 'Reading the text …';
  try {
    const gates = await fox.gates(text, { signal: mine.signal, onProgress: showProgress });
    if (mine.signal.aborted) return undefined;
    if (forgetsNothing(gates)) tell(problem, ungated(gates));
    else await show(gates, mine.signal);
    if (!mine.signal.aborted && !view.hidden) shown = { fox, text, gates };
    return undefined;
  } catch (thrown) {
    const code = thrown instanceof KitfoxError ? thrown.code : undefined;
    if (code !== 'aborted' && !mine.signal.aborted) tell(problem, lamented(code, sentence(thrown)));
    return code;
  } finally {
    if (ends === mine) reading.hidden = true;
  }
}

function showProgress({ done, total }: PrefillProgress): void {
  progress.max = total;
  progress.value = done;
  progressLabel.textContent = `Reading the text: ${done.toLocaleString('en')} of ${total.toLocaleString('en')} tokens …`;
}

function ungated({ window, ids }: Gates): string {
  const sees = window === undefined || window >= ids.length ? 'every token sees all of the text before it' : `every token sees the ${window} tokens up to itself`;
  return `This model has no forget gate: ${sees}, and nothing fades.`;
}

function lamented(code: KitfoxErrorCode | undefined, said: string): string {
  if (code === 'context-full') return `The text is longer than the model can read at once. ${said}`;
  if (code === 'device-lost') return `The graphics device is gone: another program, the driver or sleep took it. Open this again, and the model is loaded again. ${said}`;
  if (code === 'crashed') return `The engine stopped. Open this again, and the model is loaded again. ${said}`;
  return said;
}

async function show(gates: Gates, signal: AbortSignal): Promise<void> {
  const wanted = (): boolean => !signal.aborted;
  drawing += 1;
  [seenBy, sight, at] = [gates, {}, gates.ids.length - 1];
  map.set(gates.layers, gates.heads);
  most.textContent = gates.ids.length.toLocaleString('en');
  reading.hidden = true;
  view.hidden = false;
  await tokens.set(gates.tokens, wanted);
  if (!wanted()) return;
  place.focus();
  await fillMap(gates, wanted);
}

/** How far back each head sees, one after the other: each takes a while of a long text. */
async function fillMap(gates: Gates, wanted: () => boolean): Promise<void> {
  const turns = new Turns();
  for (let layer = 0; layer < gates.layers; layer += 1) {
    for (let head = 0; head < gates.heads; head += 1) {
      await turns.pause();
      if (!wanted()) return;
      map.fill(layer, head, effectiveContext(gates, layer, head), gates.ids.length);
    }
  }
}

/** Shades the text as the token that is looked from sees it. */
async function draw(): Promise<void> {
  const gates = seenBy;
  if (gates === undefined) return;
  const mine = (drawing += 1);
  const row = await rowOf(gates, at, sight, () => mine === drawing);
  if (row === undefined) return;
  tokens.shade(row);
  const sum = row.reduce((all, part) => all + part, 0);
  const where = `${nameOfToken(gates.tokens[at] ?? '')}, token ${at + 1} of ${gates.ids.length}`;
  seen.textContent = `At ${where}, ${nameOf(sight)} still sees as much as ${count(sum)} token${count(sum) === '1.0' ? '' : 's'}.`;
  left.replaceChildren(
    ...leftBehind(row).map(({ back, part }) => {
      const [group, dt, dd] = [document.createElement('div'), document.createElement('dt'), document.createElement('dd')];
      dt.textContent = `${back} back`;
      dd.textContent = percent(part);
      group.append(dt, dd);
      return group;
    }),
  );
}
