/**
 * The page: one prompt, one answer at a time. Query: `?model=URL` and `?device=auto|gpu|cpu`.
 *
 * A failed load or answer is told in a sentence, and the page goes on: the next press of the button tries again.
 */

import { Kitfox, KitfoxError, type DeviceChoice, type GenerateOptions, type Info, type LoadProgress, type Summary } from 'kitfox';
import { element, megabytes, sentence, tell } from './elements.js';

const form = element('form', HTMLFormElement);
const prompt = element('prompt', HTMLTextAreaElement);
const go = element('go', HTMLButtonElement);
const stop = element('stop', HTMLButtonElement);
const output = element('output', HTMLDivElement);
const stats = element('stats', HTMLSpanElement);
const notice = element('notice', HTMLParagraphElement);
const error = element('error', HTMLParagraphElement);
const about = element('model', HTMLParagraphElement);
const loading = element('loading', HTMLElement);
const progress = element('progress', HTMLProgressElement);
const progressLabel = element('progress-label', HTMLLabelElement);
const device = element('device', HTMLSelectElement);
const input = (id: string): HTMLInputElement => element(id, HTMLInputElement);

const query = new URLSearchParams(location.search);
const modelUrl = query.get('model') ?? 'models/demo.gguf';
const openings = [
  'The old fox stopped at the edge of the wood, and',
  'On the last evening of the summer the three children',
  'It was a strange machine that stood in the',
];

let fox: Kitfox | undefined;
let loadEnds: AbortController | undefined;
let answerEnds: AbortController | undefined;

prompt.value = openings[Math.floor(Math.random() * openings.length)] ?? '';
const asked = query.get('device') ?? 'auto';
const devices = [...device.options].map(({ value }) => value);

form.addEventListener('submit', (event) => {
  event.preventDefault();
  void answer();
});
stop.addEventListener('click', () => answerEnds?.abort());
device.addEventListener('change', () => void load());
if (devices.includes(asked)) {
  device.value = asked;
  void load();
} else {
  tell(error, `This page's address asks for the device "${asked}"; there are ${devices.join(', ')}. Choose one below, or just go on.`);
  loading.hidden = true;
  go.disabled = false;
}

/** Loads the model on the chosen device, in place of the one before. */
async function load(): Promise<boolean> {
  answerEnds?.abort();
  loadEnds?.abort();
  fox?.dispose();
  fox = undefined;
  const ends = (loadEnds = new AbortController());
  tell(error);
  tell(notice);
  about.textContent = '';
  go.disabled = true;
  showProgress('Loading the model …');
  try {
    const onProgress = ({ doneBytes, totalBytes, bytesPerSecond }: LoadProgress): void => {
      const pace = bytesPerSecond > 0 ? `, ${megabytes(bytesPerSecond)} a second` : '';
      progress.max = Math.max(totalBytes, 1);
      progress.value = doneBytes;
      progressLabel.textContent = doneBytes < totalBytes ? `Loading the model: ${megabytes(doneBytes)} of ${megabytes(totalBytes)}${pace}` : 'Warming up …';
    };
    const loaded = await Kitfox.load(modelUrl, { device: device.value as DeviceChoice, signal: ends.signal, onProgress });
    if (ends.signal.aborted) {
      loaded.dispose();
      return false;
    }
    fox = loaded;
    describe(loaded.info);
    return true;
  } catch (thrown) {
    if (!ends.signal.aborted) tell(error, `The model could not be loaded. ${sentence(thrown)}`);
    return false;
  } finally {
    if (loadEnds === ends) {
      loading.hidden = true;
      loading.ariaBusy = 'false';
      go.disabled = false;
    }
  }
}

/** Continues the prompt. */
async function answer(): Promise<void> {
  if (answerEnds !== undefined || (fox === undefined && !(await load())) || fox === undefined) return;
  const ends = (answerEnds = new AbortController());
  tell(error);
  stats.textContent = 'Reading …';
  go.disabled = true;
  stop.disabled = false;
  output.ariaBusy = 'true';
  const opening = document.createElement('span');
  opening.className = 'prompt';
  opening.textContent = prompt.value;
  const text = document.createTextNode('');
  output.replaceChildren(opening, text);
  try {
    const onPrefill = ({ done, total }: { done: number; total: number }): void => {
      stats.textContent = done < total ? `Reading ${done} of ${total} tokens …` : 'Writing …';
    };
    const generation = fox.generate(prompt.value, { ...settings(), signal: ends.signal, onPrefill });
    const pace = new Pace();
    try {
      for await (const piece of generation) {
        stats.textContent = pace.after(piece.ids.length);
        const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
        text.appendData(piece.text);
        if (atEnd) output.scrollTop = output.scrollHeight;
      }
    } finally {
      stats.textContent = generation.summary === undefined ? '' : describeSummary(generation.summary);
    }
  } catch (thrown) {
    const code = thrown instanceof KitfoxError ? thrown.code : undefined;
    if (code === 'crashed' || code === 'device-lost') {
      fox?.dispose();
      fox = undefined;
    }
    if (code !== 'aborted' && code !== 'disposed') tell(error, sentence(thrown));
  } finally {
    answerEnds = undefined;
    output.ariaBusy = 'false';
    stop.disabled = true;
    go.disabled = !loading.hidden;
  }
}

/** The speed while an answer is written, told at most four times a second. */
class Pace {
  #tokens = 0;
  #began = 0;
  #told = 0;
  #text = 'Writing …';

  after(tokens: number): string {
    const now = performance.now();
    if (this.#tokens === 0) this.#began = now;
    this.#tokens += tokens;
    if (now - this.#told > 250 && now > this.#began) {
      this.#told = now;
      this.#text = `Writing: ${this.#tokens} tokens, ${(((this.#tokens - 1) * 1000) / (now - this.#began)).toFixed(1)} tokens/s`;
    }
    return this.#text;
  }
}

function settings(): GenerateOptions {
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

function showProgress(label: string): void {
  loading.hidden = false;
  loading.ariaBusy = 'true';
  progress.removeAttribute('value');
  progressLabel.textContent = label;
}

function describe(info: Info): void {
  if (info.deviceNote !== undefined) tell(notice, `Running on the CPU: ${info.deviceNote}.`);
  const place = info.gpu ? `the GPU (${info.device})` : 'the CPU';
  about.textContent = `Runs on ${place}, with ${megabytes(info.deviceBytes)} of memory there. Prompt and story may have ${info.contextTokens} tokens together.`;
}

function describeSummary({ tokens, tokensPerSecond, finish, firstTokenMs, seed }: Summary): string {
  const why = { length: '', eos: ' The story ended.', stop: '', context: ' The context is full.', aborted: ' Stopped.' }[finish];
  const first = firstTokenMs === undefined ? '' : `, first after ${(firstTokenMs / 1000).toFixed(2)} s`;
  return `${tokens} tokens, ${tokensPerSecond.toFixed(1)} tokens/s${first}, seed ${seed}.${why}`;
}
