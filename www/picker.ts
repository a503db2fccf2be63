/** Which model: the list, an address, or files of this machine, chosen or dropped. */

import { Kitfox, type Info, type LoadSource, type Manifest } from 'kitfox';
import { closeFromOutside, element, megabytes, sentence, tell, tellCut } from './elements.js';
import models from './models.json';
import { hostsOf } from './policy.mjs';
import { takes } from './takes.js';

/** A model to load. */
export interface Choice {
  /** As people know it. */
  name: string;
  source: LoadSource;
  /** What its file is to be, as the page's own list says. */
  manifest?: Manifest;
}

/** A model of the list; its manifest is what `kitfox manifest` writes. */
interface Listed {
  name: string;
  url: string;
  about: string;
  manifest?: Manifest;
}

const listed: readonly Listed[] = models as Listed[];
const dialog = element('models', HTMLDialogElement);
const known = element('known', HTMLUListElement);
const file = element('file', HTMLInputElement);
const url = element('url', HTMLInputElement);
const drop = element('drop', HTMLDivElement);
const kept = element('kept', HTMLElement);
const cached = element('cached', HTMLUListElement);
const about = element('about', HTMLDListElement);

const planned = element('planned', HTMLParagraphElement);

const hosts = hostsOf(models);
/** Ends what is found out while the dialog is open. */
let ends = new AbortController();
/** The source that is loaded. */
let loaded: LoadSource | undefined;
/** What the page starts with. */
export const first: Choice = listed[0] === undefined ? { name: 'Demo', source: 'models/demo.gguf' } : choiceOf(listed[0]);

/** Ties the dialog together; `onChoice` hears of what was chosen. */
export function startPicker(onChoice: (choice: Choice) => void): void {
  const choose = (choice: Choice): void => {
    dialog.close();
    onChoice(choice);
  };
  element('choose', HTMLButtonElement).addEventListener('click', () => {
    dialog.showModal();
    ends = new AbortController();
    tell(planned);
    void listKept();
    void planKnown(ends.signal);
  });
  dialog.addEventListener('close', () => dialog.open || ends.abort());
  // A press beside the dialog is one on its backdrop.
  closeFromOutside(dialog);
  tellCut(dialog);
  known.replaceChildren(...listed.map((model) => row(model.name, model.about, 'Load', () => choose(choiceOf(model)))));
  tellKnown();
  file.addEventListener('change', () => {
    const choice = ofFiles(file.files);
    file.value = '';
    if (choice !== undefined) choose(choice);
  });
  element('by-url', HTMLFormElement).addEventListener('submit', (event) => {
    event.preventDefault();
    if (url.value.trim() !== '') choose(ofUrl(url.value.trim()));
  });
  element('plan', HTMLButtonElement).addEventListener('click', () => void planAddress(ends.signal));
  const reach = ['this page’s own host', ...hosts].join(', ');
  element('hosts', HTMLParagraphElement).textContent = `Of ${reach}: nothing else is fetched. A model of another host comes as a file.`;
  listenForDrops(choose);
}

/** A model of an address. */
export function ofUrl(address: string): Choice {
  const known = listed.find((model) => model.url === address);
  return known === undefined ? { name: address.split(/[?#]/)[0]?.split('/').pop() || address, source: address } : choiceOf(known);
}

function choiceOf({ name, url, manifest }: Listed): Choice {
  return { name, source: url, ...(manifest === undefined ? {} : { manifest }) };
}

/** Why an address is out of reach, if it is. What is no address is told by the load itself. */
export function outOfReach({ source }: Choice): string | undefined {
  if (typeof source !== 'string' || !URL.canParse(source, document.baseURI)) return undefined;
  const { origin, host } = new URL(source, document.baseURI);
  if (origin === location.origin || hosts.includes(origin)) return undefined;
  return `This page fetches nothing from ${host || 'there'}: download the file yourself and drop it here`;
}

/** Tells what each model of the list would take, one after the other. */
async function planKnown(signal: AbortSignal): Promise<void> {
  for (const [ix, model] of models.entries()) {
    const place = known.children[ix]?.querySelector('.takes');
    if (place === null || place === undefined || signal.aborted) return;
    const found = await takes(model.url, signal);
    if (found !== '') place.textContent = found;
  }
}

/** Tells what the model of the address would take. */
async function planAddress(signal: AbortSignal): Promise<void> {
  const choice = ofUrl(url.value.trim());
  if (choice.source === '') return url.focus();
  tell(planned, `Looking at ${choice.name} …`);
  const far = outOfReach(choice);
  const found = far === undefined ? await takes(choice.source, signal) : sentence(far);
  if (!signal.aborted && url.value.trim() === choice.source) tell(planned, found);
}

/** One file, or the parts of one in the order of their names. */
function ofFiles(files: FileList | null | undefined): Choice | undefined {
  const parts = [...(files ?? [])].sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
  const [head] = parts;
  return head === undefined ? undefined : { name: head.name, source: parts };
}

/** Why files are no model, if their first bytes show it. */
export async function noModel({ name, source }: Choice): Promise<string | undefined> {
  const parts = Array.isArray(source) ? source.filter((part) => part instanceof Blob) : [];
  if (parts.length === 0) return undefined;
  try {
    const magic = new TextDecoder('latin1').decode(await new Blob(parts).slice(0, 4).arrayBuffer());
    return magic === 'GGUF' ? undefined : `${name}: magic: expected "GGUF" (a GGUF file), got ${JSON.stringify(magic)}`;
  } catch (thrown) {
    return `${name}: cannot be read: ${sentence(thrown)}`; // a folder that was dropped, a file that is gone
  }
}

function listenForDrops(choose: (choice: Choice) => void): void {
  const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes('Files') === true;
  document.addEventListener('dragover', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    drop.hidden = false;
  });
  document.addEventListener('dragleave', ({ relatedTarget }) => {
    if (relatedTarget === null) drop.hidden = true;
  });
  document.addEventListener('drop', (event) => {
    drop.hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault();
    const choice = ofFiles(event.dataTransfer?.files);
    if (choice !== undefined) choose(choice);
  });
}

/** Says of the list which model is loaded: that has no button. */
function tellKnown(): void {
  for (const [ix, { url }] of models.entries()) {
    const [button, word] = [known.children[ix]?.querySelector('button'), known.children[ix]?.querySelector<HTMLElement>('.word')];
    if (button === null || button === undefined || word === null || word === undefined) return;
    button.hidden = url === loaded;
    tell(word, url === loaded ? 'Loaded' : undefined);
  }
}

/** The loaded model is gone. */
export function undescribe(): void {
  loaded = undefined;
  about.replaceChildren();
  tellKnown();
}

/** Tells what the loaded model is and takes. */
export function describe({ name, source }: Choice, info: Info): void {
  loaded = source;
  tellKnown();
  const rows: [string, string][] = [
    ['Loaded', name],
    ['Runs on', info.gpu ? `the GPU: ${info.device}` : `the CPU${info.deviceNote === undefined ? '' : `: ${info.deviceNote}`}`],
    ['Memory there', megabytes(info.deviceBytes)],
    ['Text', `${info.contextTokens.toLocaleString('en')} tokens together, and more where it forgets`],
    ...(info.prune === undefined ? [] : [['Forgets', `keys that together weigh less than ${info.prune.toExponential(1)} of a word’s attention`] as [string, string]]),
  ];
  about.replaceChildren(
    ...rows.flatMap(([term, value]) => {
      const [dt, dd] = [document.createElement('dt'), document.createElement('dd')];
      dt.textContent = term;
      dd.textContent = value;
      return [dt, dd];
    }),
  );
}

/** Lists the files that the browser keeps for this page. */
async function listKept(): Promise<void> {
  const files = await Kitfox.cached().catch(() => []);
  const focused = [...cached.children].findIndex((item) => item.contains(document.activeElement));
  kept.hidden = files.length === 0;
  cached.replaceChildren(
    ...files.map((one) => {
      const remove = (): Promise<void> => Kitfox.evict(one.url).then(listKept, listKept);
      return row(nameOf(one.url), megabytes(one.bytes), 'Remove', () => void remove());
    }),
  );
  // The row in whose place another is, or none.
  if (focused >= 0) (cached.children[Math.min(focused, files.length - 1)]?.querySelector('button') ?? url).focus();
}

/** A kept file's name: that of the list, or as people write it; an address may be one that nobody has encoded. */
function nameOf(address: string): string {
  const listed = models.find((model) => new URL(model.url, document.baseURI).href === address);
  if (listed !== undefined) return listed.name;
  const name = new URL(address).pathname.split('/').pop() || address;
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

function row(name: string, note: string, verb: string, act: () => void): HTMLLIElement {
  const [item, text, small, button] = [document.createElement('li'), document.createElement('p'), document.createElement('small'), document.createElement('button')];
  const plan = document.createElement('small');
  plan.className = 'takes';
  text.textContent = name;
  small.textContent = note;
  text.append(small, plan);
  button.type = 'button';
  button.className = 'small';
  button.textContent = verb;
  button.ariaLabel = `${verb} ${name}`;
  button.addEventListener('click', act);
  const word = document.createElement('small');
  word.className = 'word';
  word.hidden = true;
  item.append(text, word, button);
  return item;
}
