/**
 * The one error class of the package. `message` is for a person and names what, where, expected and got; `code` is a stable
 * word for programs.
 */

/** Codes of the engine: the words of `Error::code()` in src/error.rs, in its order (a test compares the two lists). */
export const ENGINE_CODES = [
  'io',
  'format',
  'tensors',
  'config',
  'argument',
  'context-full',
  'no-tokenizer',
  'tokenizer',
  'no-gpu',
  'out-of-memory',
  'device-lost',
  'gpu',
  'not-finite',
  'aborted',
] as const satisfies readonly KitfoxErrorCode[];

/**
 * Codes that only the web has:
 * `http`: the server refused the file; `network`: no answer, or a connection that broke; `integrity`: the file is not the one of its
 * manifest; `not-cached`: no complete copy, and no network wanted; `worker`: the worker or the wasm module did not start; `crashed`: the engine panicked and
 * this model is gone, load it again; `disposed`: used after `dispose()`.
 */
export const WEB_CODES = ['http', 'network', 'integrity', 'not-cached', 'worker', 'crashed', 'disposed'] as const satisfies readonly KitfoxErrorCode[];

/** What went wrong, as a word for programs: the README says what each means. Those of the engine, then those that only the web has. */
export type KitfoxErrorCode =
  | 'io'
  | 'format'
  | 'tensors'
  | 'config'
  | 'argument'
  | 'context-full'
  | 'no-tokenizer'
  | 'tokenizer'
  | 'no-gpu'
  | 'out-of-memory'
  | 'device-lost'
  | 'gpu'
  | 'not-finite'
  | 'aborted'
  | 'http'
  | 'network'
  | 'integrity'
  | 'not-cached'
  | 'worker'
  | 'crashed'
  | 'disposed';

/** Everything that this package throws or rejects with. */
export class KitfoxError extends Error {
  /** The class's name, also where a minifier has renamed the class. */
  override readonly name = 'KitfoxError';
  /** What went wrong, as a word for programs. */
  readonly code: KitfoxErrorCode;

  /** With a word and a sentence, and what it came of. */
  constructor(code: KitfoxErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** How an error crosses from the worker: class and prototype do not survive the structured clone of every browser. */
export interface WireError {
  /** Its word for programs. */
  code: KitfoxErrorCode;
  /** Its sentence for a person. */
  message: string;
  /** What it came of, if that was an error: its class and its words. */
  cause?: { name: string; message: string };
}

const KNOWN: ReadonlySet<string> = new Set([...ENGINE_CODES, ...WEB_CODES]);

/** Anything thrown, as an error of ours: those without a known code are bugs or traps of the engine, hence `crashed`. */
export function toWire(thrown: unknown): WireError {
  const code = (thrown as { code?: unknown } | null | undefined)?.code;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  const known = typeof code === 'string' && KNOWN.has(code);
  const cause = known ? (thrown as { cause?: unknown }).cause : thrown;
  const its = cause instanceof Error ? { cause: { name: cause.name, message: cause.message } } : {};
  if (known) return { code: code as KitfoxErrorCode, message, ...its };
  return { code: 'crashed', message: `the engine stopped: ${message}`, ...its };
}

/** The error that crossed, as the page throws it. */
export function fromWire({ code, message, cause }: WireError): KitfoxError {
  if (cause === undefined) return new KitfoxError(code, message);
  return new KitfoxError(code, message, { cause: Object.assign(new Error(cause.message), { name: cause.name }) });
}

/** The error for a call that the caller ended through its signal. */
export function aborted(signal?: AbortSignal): KitfoxError {
  return new KitfoxError('aborted', 'aborted', { cause: signal?.reason });
}

/** Gives what `work` gives, or rejects as soon as the signal ends the wait for it: what cannot be stopped goes on unheard. */
export async function unlessAborted<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  if (signal === undefined) return work();
  if (signal.aborted) throw aborted(signal);
  let stop = (): void => undefined;
  try {
    const ended = new Promise<never>((_, reject) => {
      stop = () => reject(aborted(signal));
      signal.addEventListener('abort', stop);
    });
    const given = await Promise.race([work(), ended]);
    if (signal.aborted) throw aborted(signal);
    return given;
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
