/**
 * The view of what the model forgets in the text on the desk: the text as a token sees it (or pays attention to it), how far back each head
 * sees, and which pages of keys stay alive. The gates are read once a text, its attention weights when they are asked for.
 */

import { KitfoxError, effectiveContext, mostAttentionTokens, type Attention, type Gates, type Kitfox, type KitfoxErrorCode, type PrefillProgress } from 'kitfox';
import { closeFromOutside, element, sentence, tell } from './elements.js';
import { HeadMap } from './heads.js';
import { count, forgetsNothing, leftBehind, nameOf, nameOfToken, ofAttention, ofGates, percent, rowOf, type Sight } from './sight.js';
import { Timeline } from './timeline.js';
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
const byGates = element('by-gates', HTMLInputElement);
const byAttention = element('by-attention', HTMLInputElement);
const byNote = element('by-note', HTMLParagraphElement);
const aboutGates = element('about-gates', HTMLSpanElement);
const aboutAttention = element('about-attention', HTMLSpanElement);

/** A text on view: its gates, and its attention weights once they are asked for. */
interface Viewed {
  readonly fox: Kitfox;
  readonly text: string;
  readonly gates: Gates;
  weights?: Attention;
}

/** What is wholly there for the next opening. */
let shown: Viewed | undefined;
/** What is on view, and who looks from which token. */
let viewed: Viewed | undefined;
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
  if (viewed !== undefined) timeline.show(viewed.gates, sight);
  void draw();
});
const timeline = new Timeline(
  {
    chart: element('timeline', HTMLDivElement),
    said: element('alive', HTMLParagraphElement),
    rule: element('alive-rule', HTMLParagraphElement),
    tokens: element('alive-tokens', HTMLSpanElement),
    pages: element('alive-pages', HTMLSpanElement),
    table: element('alive-table', HTMLTableElement),
  },
  (ix) => tokens.choose(ix),
);

for (const choice of [byGates, byAttention]) choice.addEventListener('change', () => void changeMatrix());

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
    else await show({ fox, text, gates }, mine.signal);
    if (!mine.signal.aborted && !view.hidden) shown = viewed;
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

async function show(wholly: Viewed, signal: AbortSignal): Promise<void> {
  const { gates } = wholly;
  const wanted = (): boolean => !signal.aborted;
  drawing += 1;
  [viewed, sight, at] = [wholly, {}, gates.ids.length - 1];
  allowAttention(wholly);
  timeline.clear();
  map.set(gates.layers, gates.heads);
  most.textContent = gates.ids.length.toLocaleString('en');
  reading.hidden = true;
  view.hidden = false;
  await tokens.set(gates, wanted);
  if (!wanted()) return;
  place.focus();
  await timeline.set(gates, wanted);
  const turns = new Turns();
  await turns.next();
  if (!wanted()) return;
  timeline.show(gates, sight);
  timeline.look(at);
  await turns.next();
  if (!wanted()) return;
  await fillMap(gates, wanted);
}

/** Whether the text can be shaded by attention; if not, why. */
function allowAttention({ gates }: Viewed): void {
  const [limit, n] = [mostAttentionTokens(gates), gates.ids.length];
  const long = `Attention weights, one for each pair of tokens and each head, can be shown of a text of at most ${limit.toLocaleString('en')} tokens; this one has ${n.toLocaleString('en')}.`;
  const why = n > limit ? long : undefined;
  byGates.checked = true;
  byAttention.disabled = why !== undefined;
  tell(byNote, why);
  tellMatrix();
}

function tellMatrix(): void {
  aboutGates.hidden = byAttention.checked;
  aboutAttention.hidden = !byAttention.checked;
}

/** Shades the text by the other matrix. Attention weights are read first, once a text. */
async function changeMatrix(): Promise<void> {
  const now = viewed;
  if (now === undefined) return;
  if (byAttention.checked && now.weights === undefined) {
    tell(byNote, 'Reading the attention weights …');
    const onProgress = ({ done, total }: PrefillProgress): void => tell(byNote, `Reading the attention weights: ${done} of ${total} tokens …`);
    try {
      now.weights = await now.fox.attention(now.text, { onProgress, ...(ends === undefined ? {} : { signal: ends.signal }) });
      if (now === viewed) tell(byNote);
    } catch (thrown) {
      const code = thrown instanceof KitfoxError ? thrown.code : undefined;
      if (now !== viewed) return;
      byGates.checked = true;
      if (code === 'aborted') tell(byNote);
      else tell(byNote, lamented(code, sentence(thrown)));
    }
  }
  if (now !== viewed) return;
  tellMatrix();
  await draw();
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
  if (viewed === undefined) return;
  const { gates, weights } = viewed;
  const mine = (drawing += 1);
  const attended = byAttention.checked ? weights : undefined;
  const row = await rowOf(attended === undefined ? ofGates(gates) : ofAttention(attended), at, sight, () => mine === drawing);
  if (row === undefined) return;
  tokens.shade(row);
  const where = `${nameOfToken(gates, at)}, token ${at + 1} of ${gates.ids.length}`;
  seen.textContent = attended === undefined ? stillSeen(where, row) : lookedAt(where, row, gates);
  timeline.look(at);
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

function stillSeen(where: string, row: Float64Array): string {
  const sum = row.reduce((all, part) => all + part, 0);
  return `At ${where}, ${nameOf(sight)} still sees as much as ${count(sum)} token${count(sum) === '1.0' ? '' : 's'}.`;
}

function lookedAt(where: string, row: Float64Array, gates: Gates): string {
  const most = row.reduce((best, part, j) => (part > (row[best] ?? 0) ? j : best), 0);
  const back = row.length - 1 - most;
  const whom = back === 0 ? 'the token itself' : `${nameOfToken(gates, most)}, ${back.toLocaleString('en')} back`;
  return `At ${where}, ${nameOf(sight)} pays ${percent(row[most] ?? 0)} of its attention to ${whom}, more than to any other.`;
}
