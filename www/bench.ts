/**
 * The page that measures: `kitfox bench` in the browser. Query: `?model=URL` and `?device=auto|gpu|cpu`.
 *
 * The prompt is the README's text, as the native program's is, so that figures of the two can be compared.
 */

import { Kitfox, type BenchOptions, type BenchReport, type DeviceChoice, type Info, type LoadOptions } from 'kitfox';
import text from '../README.md?raw';
import { element, enable, guardButtons, megabytes, sentence, tell } from './elements.js';
import { guarded } from './offline.js';

/** What is measured side by side: each has a name, and its own options. */
interface Side {
  name: string;
  load?: Pick<LoadOptions, 'prune'>;
  bench?: Pick<BenchOptions, 'inFlight'>;
}

const COMPARED: Record<string, readonly Side[]> = {
  nothing: [{ name: '' }],
  prune: [{ name: 'as the model states' }, { name: 'no pruning', load: { prune: 'off' } }],
  inFlight: [{ name: 'as many as pay' }, { name: 'one in flight', bench: { inFlight: 1 } }],
};

/** Figures of one side. */
interface Figures {
  side: Side;
  info: Info;
  report: BenchReport;
}

const form = element('form', HTMLFormElement);
const go = element('go', HTMLButtonElement);
const stop = element('stop', HTMLButtonElement);
const stats = element('stats', HTMLSpanElement);
const notice = element('notice', HTMLParagraphElement);
const error = element('error', HTMLParagraphElement);
const progress = element('progress', HTMLProgressElement);
const results = element('results', HTMLElement);
const table = element('table', HTMLTableElement);
const json = element('json', HTMLPreElement);
const copy = element('copy', HTMLButtonElement);
const device = element('device', HTMLSelectElement);
const number = (id: string): number => element(id, HTMLInputElement).valueAsNumber;
const choice = (id: string): string => element(id, HTMLSelectElement).value;

const query = new URLSearchParams(location.search);
const modelUrl = query.get('model') ?? 'models/demo.gguf';
const asked = query.get('device') ?? 'auto';
if ([...device.options].some(({ value }) => value === asked)) device.value = asked;

let ends: AbortController | undefined;

guardButtons();
form.addEventListener('submit', (event) => {
  event.preventDefault();
  void measure();
});
stop.addEventListener('click', () => ends?.abort());
copy.addEventListener('click', () => {
  navigator.clipboard.writeText(json.textContent ?? '').then(
    () => (copy.textContent = 'Copied'),
    () => getSelection()?.selectAllChildren(json), // a browser that does not let a page copy
  );
});

async function measure(): Promise<void> {
  if (ends !== undefined) return;
  const { signal } = (ends = new AbortController());
  tell(error);
  tell(notice);
  results.hidden = true;
  copy.textContent = 'Copy as JSON';
  enable(go, false);
  enable(stop, true);
  progress.hidden = false;
  try {
    const figures: Figures[] = [];
    for (const side of COMPARED[choice('compare')] ?? []) {
      figures.push(await measureSide(side, signal));
      show(figures);
    }
  } catch (thrown) {
    if (!signal.aborted) tell(error, sentence(thrown));
  } finally {
    ends = undefined;
    stats.textContent = signal.aborted ? 'Stopped.' : '';
    progress.hidden = true;
    enable(stop, false);
    enable(go, true);
  }
}

async function measureSide(side: Side, signal: AbortSignal): Promise<Figures> {
  const what = side.name === '' ? '' : ` (${side.name})`;
  const [context, n] = [number('context'), number('n')];
  const at = (label: string, done: number, total: number): void => {
    stats.textContent = label + what;
    progress.max = Math.max(total, 1);
    progress.value = done;
  };
  const onLoad = ({ doneBytes, totalBytes }: { doneBytes: number; totalBytes: number }): void => {
    at(doneBytes < totalBytes ? `Loading: ${megabytes(doneBytes)} of ${megabytes(totalBytes)}` : 'Warming up …', doneBytes, totalBytes);
  };
  const options = { device: device.value as DeviceChoice, context: context + n + 1, signal, onProgress: onLoad, revalidate: navigator.onLine, ...side.load };
  await guarded;
  const fox = await Kitfox.load(modelUrl, options);
  // A phase is not interrupted: an end of the worker is.
  const stopNow = (): void => fox.dispose();
  signal.addEventListener('abort', stopNow);
  try {
    const { info } = fox;
    if (info.deviceNote !== undefined) tell(notice, sentence(`Running on the CPU: ${info.deviceNote}`));
    const onProgress = ({ done, total }: { done: number; total: number }): void => at(`Measuring: ${done} of ${total}`, done, total);
    at('Measuring …', 0, 1);
    const report = await fox.bench({ context, n, runs: number('runs'), floor: choice('floor') === 'yes', text, onProgress, ...side.bench });
    return { side, info, report };
  } finally {
    signal.removeEventListener('abort', stopNow);
    fox.dispose();
  }
}

const digits = (value: number, most: number): string => value.toLocaleString('en', { maximumFractionDigits: most });
const maybe = (value: number | null, show: (value: number) => string): string => (value === null ? 'not measured' : show(value));
const spread = (median: number, [slowest, quickest]: readonly [number, number]): string =>
  `${digits(median, 1)} (${digits(slowest, 1)} to ${digits(quickest, 1)})`;

const ROWS: readonly [string, (figures: Figures) => string][] = [
  ['Adapter', ({ report }) => report.adapter],
  ['Backend', ({ report }) => report.backend],
  ['Beyond WebGPU’s baseline', ({ info }) => info.deviceFeatures || 'nothing'],
  ['Width, layers, heads, vocabulary', ({ report }) => report.shape.join(', ')],
  ['Matrices', ({ report }) => report.quant],
  ['Prompt, tokens', ({ report }) => String(report.context)],
  ['Reading, tokens/s', ({ report }) => spread(report.prefill_tokens_per_s, report.prefill_spread)],
  ['Writing, tokens/s', ({ report }) => spread(report.decode_tokens_per_s, report.decode_spread)],
  ['A token, ms', ({ report }) => digits(report.decode_ms, 3)],
  ['Its floor, ms', ({ report }) => maybe(report.floor_ms, (ms) => digits(ms, 3))],
  ['Part of the floor', ({ report }) => maybe(report.floor_fraction, (part) => `${digits(part * 100, 0)} %`)],
  ['Copy, GB/s', ({ report }) => maybe(report.copy_gb_s, (rate) => digits(rate, 1))],
  ['Dispatch, µs', ({ report }) => maybe(report.dispatch_us, (us) => digits(us, 2))],
  ['Dispatches a token', ({ report }) => String(report.dispatches_per_token)],
  ['Read for a token', ({ report }) => megabytes(report.bytes_per_token)],
  ['Live keys', ({ report }) => `${digits(report.live_kv_fraction * 100, 1)} %`],
  ['Memory on the device', ({ report }) => megabytes(report.peak_device_bytes)],
  ['CPU a token, µs', ({ report }) => digits(report.cpu_us_per_token, 0)],
];

function show(figures: readonly Figures[]): void {
  const row = (kind: 'td' | 'th', cells: readonly string[]): HTMLTableRowElement => {
    const out = document.createElement('tr');
    for (const [ix, value] of cells.entries()) {
      const cell = document.createElement(ix === 0 ? 'th' : kind);
      if (cell.tagName === 'TH') cell.scope = ix === 0 ? 'row' : 'col';
      cell.textContent = value;
      out.append(cell);
    }
    return out;
  };
  const rows = ROWS.map(([name, value]) => row('td', [name, ...figures.map(value)]));
  if (figures.some(({ side }) => side.name !== '')) rows.unshift(row('th', ['', ...figures.map(({ side }) => side.name)]));
  table.replaceChildren(...rows);
  const reports = figures.map(({ side: { name }, info, report }) => ({
    ...(name === '' ? {} : { name }),
    ...report,
    device_features: info.deviceFeatures,
    browser: navigator.userAgent,
  }));
  json.textContent = JSON.stringify(reports.length === 1 ? reports[0] : reports, null, 2);
  results.hidden = false;
}
