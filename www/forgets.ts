/**
 * The view of what the model forgets in the text on the desk: the text as a token sees it (or pays attention to it), how far back each head
 * sees, and which pages of keys stay alive. The gates are read once a text, its attention weights when they are asked for.
 */

import { KitfoxError, effectiveContext, mostAttentionTokens, type Attention, type Gates, type Kitfox, type KitfoxErrorCode, type PrefillProgress } from 'kitfox';
import { closeFromOutside, element, sentence, tell, tellCut } from './elements.js';
import { HeadMap } from './heads.js';
import { aboutSight, count, forgetsNothing, leftBehind, nameOf, nameOfToken, ofAttention, ofGates, percent, rowOf, tellingSight, type Sight } from './sight.js';
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
const through = element('through', HTMLParagraphElement);
const most = element('reach-most', HTMLSpanElement);
const byGates = element('by-gates', HTMLInputElement);
const byAttention = element('by-attention', HTMLInputElement);
const byProgress = element('by-progress', HTMLProgressElement);
const byNote = element('by-note', HTMLParagraphElement);
const aboutGates = element('about-gates', HTMLSpanElement);
const aboutAttention = element('about-attention', HTMLSpanElement);

/** A text on view: its gates, the effective context of each layer's heads, and its attention weights once they are asked for. */
interface Viewed {
  readonly fox: Kitfox;
  readonly text: string;
  readonly gates: Gates;
  readonly contexts: readonly (readonly number[])[];
  weights?: Attention;
  /** The reading of the weights that is under way. */
  reading?: Promise<void>;
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
  tellSight();
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
tellCut(dialog);

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
    else await show(fox, text, gates, mine.signal);
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

async function show(fox: Kitfox, text: string, gates: Gates, signal: AbortSignal): Promise<void> {
  const wanted = (): boolean => !signal.aborted;
  const contexts = await contextsOf(gates, wanted);
  if (contexts === undefined) return;
  await new Turns().next();
  if (!wanted()) return;
  const n = gates.ids.length;
  drawing += 1;
  [viewed, sight, at] = [{ fox, text, gates, contexts }, tellingSight(contexts, n), n - 1];
  allowAttention(viewed);
  timeline.clear();
  map.set(contexts, n, sight);
  tellSight();
  most.textContent = n.toLocaleString('en');
  reading.hidden = true;
  view.hidden = false;
  await tokens.set(gates, wanted);
  if (!wanted()) return;
  place.focus();
  await timeline.set(gates, wanted);
  await new Turns().next();
  if (!wanted()) return;
  timeline.show(gates, sight);
  timeline.look(at);
}

/** How far back each layer's heads see; undefined once it is no longer `wanted`: it takes a while of a long text. */
async function contextsOf(gates: Gates, wanted: () => boolean): Promise<number[][] | undefined> {
  const turns = new Turns();
  const contexts: number[][] = [];
  for (let layer = 0; layer < gates.layers; layer += 1) {
    const row: number[] = [];
    for (let head = 0; head < gates.heads; head += 1) {
      await turns.pause();
      if (!wanted()) return undefined;
      row.push(effectiveContext(gates, layer, head));
    }
    contexts.push(row);
  }
  return contexts;
}

function tellSight(): void {
  if (viewed !== undefined) through.textContent = aboutSight(sight, viewed.contexts, viewed.gates.ids.length);
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

/** Shades the text by the other matrix. Attention weights are read first, once a text; until then nothing is shaded. */
async function changeMatrix(): Promise<void> {
  const now = viewed;
  if (now === undefined) return;
  tellMatrix();
  if (byAttention.checked && now.weights === undefined) {
    tell(byNote);
    tellWeights(now, 0, 0);
    now.reading ??= readWeights(now).finally(() => delete now.reading);
    await now.reading;
  }
  if (now === viewed) await draw();
}

/** Reads the attention weights. Without them the text is shaded by its gates again, and it is told why. */
async function readWeights(now: Viewed): Promise<void> {
  const onProgress = ({ done, total }: PrefillProgress): void => tellWeights(now, done, total);
  try {
    now.weights = await now.fox.attention(now.text, { onProgress, ...(ends === undefined ? {} : { signal: ends.signal }) });
  } catch (thrown) {
    const code = thrown instanceof KitfoxError ? thrown.code : undefined;
    if (now !== viewed) return;
    byGates.checked = true;
    tellMatrix();
    if (code !== 'aborted') tell(byNote, lamented(code, sentence(thrown)));
  }
}

/** Tells how much of the weights is read, in place of a shade that would be another's. */
function tellWeights(now: Viewed, done: number, total: number): void {
  if (now !== viewed || !byAttention.checked) return;
  drawing += 1;
  place.ariaBusy = 'true';
  byProgress.hidden = false;
  if (total > 0) [byProgress.max, byProgress.value] = [total, done];
  else byProgress.removeAttribute('value');
  seen.textContent = total > 0 ? `Reading the attention weights: ${done} of ${total} tokens …` : 'Reading the attention weights …';
  left.replaceChildren();
}

/** Shades the text as the token that is looked from sees it. */
async function draw(): Promise<void> {
  if (viewed === undefined) return;
  const { gates, weights } = viewed;
  const attended = byAttention.checked ? weights : undefined;
  timeline.look(at);
  // Its weights are being read: until they are there, there is nothing to show.
  if (byAttention.checked && attended === undefined) return;
  const mine = (drawing += 1);
  const row = await rowOf(attended === undefined ? ofGates(gates) : ofAttention(attended), at, sight, () => mine === drawing);
  if (row === undefined) return;
  byProgress.hidden = true;
  place.ariaBusy = null;
  tokens.shade(row);
  const what = attended === undefined ? stillSeen(row) : lookedAt(row, gates);
  seen.replaceChildren('At ', ...named(gates, at), `, token ${at + 1} of ${gates.ids.length}, ${nameOf(sight)} `, ...what);
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

/** A token's name, its own letters set apart: in quotes they could not be told from those of the text. */
function named(gates: Gates, ix: number): (string | Node)[] {
  const { words, letters } = nameOfToken(gates, ix);
  if (letters === '') return [words];
  const code = document.createElement('code');
  code.textContent = letters;
  return [words, code];
}

function stillSeen(row: Float64Array): string[] {
  const sum = row.reduce((all, part) => all + part, 0);
  const of = row.length === 1 ? '1 token' : `${row.length.toLocaleString('en')} tokens: what is left of each, added up`;
  return [`still sees ${count(sum)} of ${of}.`];
}

function lookedAt(row: Float64Array, gates: Gates): (string | Node)[] {
  const most = row.reduce((best, part, j) => (part > (row[best] ?? 0) ? j : best), 0);
  const back = row.length - 1 - most;
  const whom = back === 0 ? ['the token itself'] : [...named(gates, most), `, ${back.toLocaleString('en')} back`];
  return [`pays ${percent(row[most] ?? 0)} of its attention to `, ...whom, ', more than to any other.'];
}
