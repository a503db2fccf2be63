/**
 * The page: a writing desk. One text that a person and the model write in turns. Query: `?model=URL` and `?device=auto|gpu|cpu`.
 *
 * A failed load or answer is told in a sentence, and the page goes on: the next press of the button tries again.
 */

import { Kitfox, KitfoxError, type Info, type LoadEvent, type LoadProgress, type Summary } from 'kitfox';
import { Draft } from './draft.js';
import { element, enable, guardButtons, isEnabled, megabytes, sentence, tell } from './elements.js';
import { openForgets } from './forgets.js';
import { Keeper } from './keeper.js';
import { guarded, startOffline } from './offline.js';
import { startOpenings } from './openings.js';
import { Paper } from './paper.js';
import { describe, first, noModel, ofUrl, outOfReach, startPicker, undescribe, type Choice } from './picker.js';
import { chosenDevice, device, devices, noteSeed, settings, startSettings } from './settings.js';
import { Spoken } from './spoken.js';
import { Writer, type Memory } from './writer.js';

const prompt = element('prompt', HTMLTextAreaElement);
const output = element('output', HTMLDivElement);
const button = (id: string): HTMLButtonElement => element(id, HTMLButtonElement);
const go = button('go');
const stop = button('stop');
const again = button('again');
const undo = button('undo');
const redo = button('redo');
const mark = button('mark');
const clear = button('clear');
const look = button('look');
const stats = element('stats', HTMLSpanElement);
const memory = element('memory', HTMLSpanElement);
const notice = element('notice', HTMLParagraphElement);
const error = element('error', HTMLParagraphElement);
const offline = element('offline', HTMLParagraphElement);
const about = element('model', HTMLParagraphElement);
const loading = element('loading', HTMLElement);
const progress = element('progress', HTMLProgressElement);
const openings = element('openings', HTMLElement);
const progressLabel = element('progress-label', HTMLLabelElement);

const query = new URLSearchParams(location.search);
const asked = query.get('model');
let choice = asked === null ? first : ofUrl(asked);
/** What was last asked for, and what was last loaded: that is gone back to when the former cannot be loaded. */
let wanted = choice;
let good: Choice | undefined;
let fox: Kitfox | undefined;
let writer: Writer | undefined;
let loadEnds: AbortController | undefined;
let answerEnds: AbortController | undefined;

const draft = new Draft();
const paper = new Paper(draft, prompt, output, element('points', HTMLOListElement), ({ at }) => change(() => draft.backTo(at)), ({ at }) => void release(at));
const spoken = new Spoken(element('spoken', HTMLDivElement));
const keeper = new Keeper(draft, (problem) => tell(element('unkept', HTMLParagraphElement), problem));

start();

function start(): void {
  keeper.recall();
  show();
  keeper.start();
  guardButtons();
  prompt.addEventListener('input', takeOver);
  element('form', HTMLFormElement).addEventListener('submit', (event) => {
    event.preventDefault();
    void answer();
  });
  stop.addEventListener('click', () => answerEnds?.abort());
  again.addEventListener('click', () => void tryAgain());
  undo.addEventListener('click', () => change(() => draft.undo()));
  redo.addEventListener('click', () => change(() => draft.redo()));
  clear.addEventListener('click', () => {
    change(() => draft.clear());
    prompt.focus();
  });
  startOpenings(openings, begin);
  mark.addEventListener('click', () => void markHere());
  look.addEventListener('click', () => void lookBack());
  document.addEventListener('keydown', onKey);
  const tellNetwork = (): boolean => (offline.hidden = navigator.onLine);
  addEventListener('online', tellNetwork);
  addEventListener('offline', tellNetwork);
  tellNetwork();
  void startOffline();
  startSettings(() => void load());
  startPicker((chosen) => void take(chosen));
  const wanted = query.get('device') ?? 'auto';
  if (devices.includes(wanted)) {
    device.value = wanted;
    void load();
  } else {
    tell(error, `This page's address asks for the device "${wanted}"; there are ${devices.join(', ')}. Choose one in the settings, or just go on.`);
    loading.hidden = true;
    allow();
  }
}

/** Takes another model. One that is seen to be none changes nothing. */
async function take(chosen: Choice): Promise<void> {
  wanted = chosen;
  const why = outOfReach(chosen) ?? (await noModel(chosen));
  if (wanted !== chosen) return;
  if (why !== undefined) return tell(error, `The model could not be loaded. ${sentence(why)}`);
  choice = chosen;
  await load();
}

/** Loads the chosen model on the chosen device, in place of the one before. */
async function load(): Promise<boolean> {
  takeOver();
  answerEnds?.abort();
  loadEnds?.abort();
  drop();
  const ends = (loadEnds = new AbortController());
  tell(error);
  tell(notice);
  about.textContent = '';
  loading.hidden = false;
  loading.ariaBusy = 'true';
  progress.removeAttribute('value');
  progressLabel.textContent = `Loading ${choice.name} …`;
  allow();
  try {
    const far = outOfReach(choice);
    if (far !== undefined) throw new Error(far);
    await guarded;
    const { source, manifest } = choice;
    // What the page itself says that a file is need not be asked of the server, too.
    const same = manifest === undefined ? { revalidate: navigator.onLine } : { manifest };
    const network = navigator.onLine ? same : { ...same, retries: 0 };
    const loaded = await Kitfox.load(source, { device: chosenDevice(), signal: ends.signal, onProgress: showProgress, onEvent: showEvent, ...network });
    if (ends.signal.aborted) {
      loaded.dispose();
      return false;
    }
    fox = loaded;
    good = choice;
    writer = new Writer(loaded);
    tellLoaded(loaded.info);
    return true;
  } catch (thrown) {
    const missing = thrown instanceof KitfoxError && thrown.code === 'network' && !navigator.onLine;
    const why = missing ? ' You are offline, and this model is not kept here.' : '';
    if (ends.signal.aborted) return false;
    const back = good === undefined || good === choice ? '' : ` Continue goes on with ${good.name}.`;
    tell(error, `The model could not be loaded. ${sentence(thrown)}${why}${back}`);
    choice = good ?? choice;
    return false;
  } finally {
    if (loadEnds === ends) {
      loading.hidden = true;
      loading.ariaBusy = 'false';
      allow();
    }
  }
}

/** Lets the model go, and what it had marked. */
function drop(): void {
  fox?.dispose();
  fox = writer = undefined;
  draft.unmark();
  memory.textContent = '';
  undescribe();
  show();
}

/** Continues the text. */
async function answer(): Promise<void> {
  takeOver();
  if (draft.text.trim() === '') {
    tell(error, 'The page is empty: write a few words for the model to go on from, or take one of the beginnings.');
    return prompt.focus();
  }
  await busy(async (writer, ends) => {
    spoken.begin();
    draft.point();
    paper.show();
    const pace = new Pace();
    await writer.write(draft.text, { ...settings(), signal: ends.signal }, {
      read: showReading,
      piece: ({ text, ids, memory }) => {
        const told = pace.after(ids.length);
        if (told !== undefined) {
          stats.textContent = told;
          tellMemory(memory);
        }
        if (text === '') return;
        draft.write(text);
        paper.stream(text);
        spoken.add(text);
      },
      end: (summary) => {
        stats.ariaLive = 'polite';
        stats.textContent = describeSummary(summary);
        noteSeed(summary.seed);
      },
    });
  });
  spoken.end();
}

/** Takes the last answer back and writes another; Redo brings the one or the other. */
async function tryAgain(): Promise<void> {
  takeOver();
  if (!isEnabled(again)) return;
  const putBy = draft.putBy();
  change(() => draft.undo());
  await answer();
  putBy();
  show();
}

/** Marks the end of the text as a place that the model keeps, or gives that mark up. */
async function markHere(): Promise<void> {
  takeOver();
  if (draft.text.trim() === '') return;
  if (draft.marked) return release(draft.text.length);
  await busy(async (writer, ends) => {
    await writer.mark(draft.text, ends.signal, { read: showReading });
    draft.point(true);
    stats.textContent = 'Marked.';
  });
}

/** Gives up a mark: the place stays, and the model keeps nothing for it. */
async function release(at: number): Promise<void> {
  takeOver();
  await busy(async (writer, ends) => {
    await writer.release(at, ends.signal);
    draft.release(at);
    stats.textContent = 'The mark is given up.';
  });
}

/** Shows what the model forgets of the text. */
async function lookBack(): Promise<void> {
  takeOver();
  if (!isEnabled(look) || (fox === undefined && !(await load())) || fox === undefined) return;
  const code = await openForgets(fox, draft.text);
  if (code === 'crashed' || code === 'device-lost') drop();
}

/** Does something with the model, which is loaded first if it has to be; one thing at a time. */
async function busy(work: (writer: Writer, ends: AbortController) => Promise<void>): Promise<void> {
  if (answerEnds !== undefined || (writer === undefined && !(await load())) || writer === undefined) return;
  const [mine, ends] = [writer, (answerEnds = new AbortController())];
  tell(error);
  stats.textContent = 'Reading …';
  allow();
  try {
    await work(mine, ends);
  } catch (thrown) {
    const code = thrown instanceof KitfoxError ? thrown.code : undefined;
    if (stats.textContent?.endsWith('…')) stats.textContent = code === 'aborted' ? 'Stopped.' : '';
    if (code === 'crashed' || code === 'device-lost') drop();
    if (code !== 'aborted' && code !== 'disposed') tell(error, lamented(code, sentence(thrown)));
  } finally {
    answerEnds = undefined;
    draft.point();
    show();
    const taken = mine === writer ? await mine.memory().catch(() => undefined) : undefined; // a model that is gone has none
    if (taken !== undefined) tellMemory(taken);
  }
}

function lamented(code: string | undefined, said: string): string {
  if (code === 'device-lost') return `The graphics device is gone: another program, the driver or sleep took it. Your text is here; Continue loads the model again. ${said}`;
  if (code === 'crashed') return `The engine stopped. Your text is here; Continue loads the model again. ${said}`;
  if (code === 'context-full') return `The page is as long as the model can hold: take something from its beginning, or begin a new one. ${said}`;
  return said;
}

/** Puts an opening on the empty page, as if it had been typed. */
function begin(opening: string): void {
  change(() => draft.text === '' && draft.edit(opening));
  prompt.focus();
  prompt.setSelectionRange(opening.length, opening.length);
}

/** Takes over what was typed. */
function takeOver(): void {
  if (answerEnds === undefined && draft.edit(prompt.value)) show();
}

/** Changes the draft by other means than typing. */
function change(how: () => unknown): void {
  if (answerEnds !== undefined) return;
  takeOver();
  how();
  tell(error);
  show();
}

function show(): void {
  paper.show();
  keeper.keep();
  allow();
}

/** Which of the buttons can be pressed. */
function allow(): void {
  const [writing, waiting] = [answerEnds !== undefined, !loading.hidden];
  const [focused, empty] = [document.activeElement, draft.text === ''];
  const idle = !writing && !waiting;
  enable(go, idle);
  stop.disabled = !writing;
  go.hidden = writing;
  stop.hidden = !writing;
  if (writing && focused === go) stop.focus();
  if (!writing && focused === stop) go.focus();
  enable(again, idle && draft.before !== undefined && draft.runs.at(-1)?.by === 'fox');
  enable(undo, !writing && draft.canUndo);
  enable(redo, !writing && draft.canRedo);
  enable(mark, idle && !empty);
  mark.ariaPressed = String(draft.marked);
  mark.title = draft.marked ? 'Give up this mark: the memory that is kept for it alone is freed' : 'Mark this place: the way back to it takes no time';
  enable(clear, !writing && !empty);
  enable(look, idle && draft.text.trim() !== '');
  openings.hidden = !empty;
  prompt.readOnly = writing;
  // Who listens hears the words, not the figures four times a second.
  stats.ariaLive = writing ? 'off' : 'polite';
  prompt.ariaBusy = String(writing);
  document.body.classList.toggle('writing', writing);
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || document.querySelector('dialog[open]') !== null) return;
  const control = event.ctrlKey || event.metaKey;
  const key = event.key.toLowerCase();
  const inText = document.activeElement === prompt || document.activeElement === document.body;
  const done = (): void => event.preventDefault();
  if (key === 'escape' && answerEnds !== undefined) {
    done();
    answerEnds.abort();
  } else if (control && key === 'enter') {
    done();
    if (event.shiftKey) void tryAgain();
    else if (isEnabled(go)) void answer();
  } else if (control && key === '.') {
    done();
    if (isEnabled(mark)) void markHere();
  } else if (control && key === '/') {
    done();
    void lookBack();
  } else if (control && inText && draft.ours && draft.text === prompt.value) {
    const forth = key === 'y' || (key === 'z' && event.shiftKey);
    if (forth && draft.canRedo) change(() => draft.redo());
    else if (key === 'z' && !forth && draft.canUndo) change(() => draft.undo());
    else return;
    done();
  }
}

/** The speed while an answer is written, told at most four times a second. */
class Pace {
  #tokens = 0;
  #began = 0;
  #told = 0;

  after(tokens: number): string | undefined {
    const now = performance.now();
    if (this.#tokens === 0) this.#began = now;
    this.#tokens += tokens;
    if (now - this.#told < 250 || now <= this.#began) return undefined;
    this.#told = now;
    return `Writing: ${this.#tokens} tokens, ${(((this.#tokens - 1) * 1000) / (now - this.#began)).toFixed(1)} tokens/s …`;
  }
}

function showProgress({ doneBytes, totalBytes, bytesPerSecond }: LoadProgress): void {
  const pace = bytesPerSecond > 0 ? `, ${megabytes(bytesPerSecond)} a second` : '';
  progress.max = Math.max(totalBytes, 1);
  progress.value = doneBytes;
  progressLabel.textContent = doneBytes < totalBytes ? `Loading ${choice.name}: ${megabytes(doneBytes)} of ${megabytes(totalBytes)}${pace}` : 'Warming up …';
}

/** The rest of what happens on the way to a model is nothing that a writer has to know. */
function showEvent({ kind }: LoadEvent): void {
  if (kind === 'waiting') progressLabel.textContent = `Another tab is fetching ${choice.name} …`;
  if (kind === 'recover') tell(notice, 'The graphics device was gone for a moment: another program, the driver or sleep took it. The model is on it again, and your text goes on.');
}

function showReading(part: number): void {
  stats.textContent = part > 0 ? `Reading, ${Math.round(part * 100)} % …` : 'Reading …';
}

function tellLoaded(info: Info): void {
  if (info.deviceNote !== undefined) tell(notice, sentence(`Running on the CPU: ${info.deviceNote}`));
  about.textContent = `${choice.name} on the ${info.gpu ? 'GPU' : 'CPU'}`;
  describe(choice, info);
}

/** Tells what the text takes of memory, and what was freed because it is forgotten. */
function tellMemory({ live, freed }: Memory): void {
  memory.textContent = `${megabytes(live)} of memory${freed >= 50_000 ? `, ${megabytes(freed)} freed` : ''}`;
}

function describeSummary({ tokens, tokensPerSecond, finish, firstTokenMs, seed }: Summary): string {
  const why = { length: '', eos: ' The story ended.', stop: '', context: ' The page is full.', aborted: ' Stopped.' }[finish];
  const start = firstTokenMs === undefined ? '' : `, first after ${(firstTokenMs / 1000).toFixed(2)} s`;
  return `${tokens} tokens, ${tokensPerSecond.toFixed(1)} tokens/s${start}, seed ${seed}.${why}`;
}
