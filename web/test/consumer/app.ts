// A user's program, as strict as TypeScript gets: only the compiler reads it.

import {
  ForgettingAttentionLayer,
  Kitfox,
  KitfoxError,
  type BenchReport,
  type FinishReason,
  type Generation,
  type GenerateOptions,
  type Info,
  type KitfoxErrorCode,
  type LayerInfo,
  type LayerSource,
  type LoadEvent,
  type LoadOptions,
  type LoadProgress,
  type Mark,
  type Piece,
  type Plan,
  type Probe,
  type Scores,
  type SelfCheck,
  type Session,
  type Stats,
  type Summary,
} from 'kitfox';

export async function write(url: URL, output: { append(text: string): void }): Promise<Summary | undefined> {
  const { signal } = new AbortController();
  const load: LoadOptions = { device: 'auto', context: 512, prune: 'off', overflow: 'slide', chunk: 64, baseline: true, signal, onProgress: ({ doneBytes, totalBytes }) => doneBytes / totalBytes };
  const fox = await Kitfox.load(url, load);
  const info: Info = fox.info;
  const options: GenerateOptions = { maxTokens: info.contextTokens, stop: ['a', 'b'] as const, signal };
  const story: Generation = fox.generate('Once', options);
  try {
    for await (const piece of story) output.append(shown(piece));
  } catch (error) {
    if (!(error instanceof KitfoxError)) throw error;
    const code: KitfoxErrorCode = error.code;
    output.append(code);
  }
  const rows: Float32Array = await fox.logits(Uint32Array.of(1), { decode: true });
  output.append(String(rows.length));
  fox.dispose();
  const finish: FinishReason | undefined = story.summary?.finish;
  return finish === 'aborted' ? undefined : story.summary;
}

export async function keep(file: File): Promise<number> {
  const onEvent = (event: LoadEvent): void => void (event.kind === 'retry' && event.waitMs.toFixed());
  const onProgress = ({ phase, bytesPerSecond }: LoadProgress): unknown => [phase === 'verify', bytesPerSecond];
  const { fits, fetchBytes }: Plan = await Kitfox.plan(['a.0', 'a.1'], { manifest: true, cache: 'off' });
  const { signal } = new AbortController();
  const probe: Probe = await Kitfox.probe({ signal });
  if (fits && probe.webgpu) (await Kitfox.load(file, { onEvent, onProgress, retries: 2, persist: true })).dispose();
  for (const { url, complete } of await Kitfox.cached({ signal })) if (!complete) await Kitfox.evict(url, { signal });
  return fetchBytes;
}

export async function talk(fox: Kitfox): Promise<Uint8Array> {
  const session: Session = await fox.session();
  const tokens: number = await session.append('Once', { signal: new AbortController().signal });
  const mark: Mark = await session.mark();
  for await (const { logprobs } of session.generate({ logprobs: true, logitBias: { 5: -1 } })) if ((logprobs?.[0] ?? 0) > tokens) break;
  for await (const piece of fox.generate('Once', { logitBias: new Map([[5, -1]]) })) if (piece.logprobs === undefined) break;
  await session.rewind(mark);
  await session.unmark(mark);
  const fork: Session = await session.fork();
  await fork.restore(await session.save());
  session.dispose();
  const { ids, logprobs }: Scores = await fox.score(await fox.detokenize(await fox.tokenize('Once')));
  const { ok, kernels }: SelfCheck = await fox.selfCheck({ onProgress: ({ done, total }) => done / total });
  const { tokensPerSecond }: Stats = await fox.stats();
  return fork.save(ok && tokensPerSecond > kernels.length + ids.length + logprobs.length ? {} : { signal: AbortSignal.timeout(1) });
}

export async function measure(fox: Kitfox): Promise<number | null> {
  const report: BenchReport = await fox.bench({ context: 64, n: 8, onProgress: ({ done, total }) => done / total });
  return report.floor_ms;
}

export async function attend(source: LayerSource, x: Float32Array): Promise<[LayerInfo, Float32Array]> {
  const layer = await ForgettingAttentionLayer.load(source, { maxTokens: 16 });
  const y = await layer.run(x);
  layer.dispose();
  return [layer.info, y];
}

const shown = (piece: Piece): string => `${piece}${piece.ids[0]}`;

export async function leave(story: Generation): Promise<number | undefined> {
  const { value }: IteratorReturnResult<Summary | undefined> = await story.return();
  return value?.tokens;
}

export function mistakes(fox: Kitfox): unknown[] {
  return [
    // @ts-expect-error no such option
    fox.generate('a', { topk: 1 }),
    // @ts-expect-error a number
    fox.generate('a', { maxTokens: '5' }),
    // @ts-expect-error a number, or off
    Kitfox.load('m.gguf', { prune: 'on' }),
    // @ts-expect-error no such device
    Kitfox.load('m.gguf', { device: 'webgpu' }),
    // @ts-expect-error made by load only
    new Kitfox(),
    // @ts-expect-error a type: pieces come of answers only
    new Piece(),
    // @ts-expect-error not to be written
    (fox.info = {}),
    // @ts-expect-error a layer needs all its matrices
    ForgettingAttentionLayer.load({ hiddenSize: 4, numHeads: 1, mode: 'encoder', bitnet: false }),
  ];
}
