// Points at which the device may fail, in headless Chromium on the GPU (SwiftShader): allocations of a load, of a model's life and of a recovery
// refused or invalid, and the device destroyed at steps of a load and of a life. (Natively every point is tried: faults.mjs.)
//
//     npm run evidence faults_browser [again] [every]
//
// After `npm run build` and `cargo build --release`. A spread of points takes a quarter of an hour on two cores, every one some hours. What is done is
// kept in target/faults_browser.json, and the next run goes on behind it; `again` begins anew. Results go to faults_browser.md beside this file.

import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { main, root, run } from '../../tools/shared.mjs';
import { chromium, inPage, openPage } from '../web/browsers.mjs';
import { serveDeep } from '../web/deep.mjs';

const MODEL = 'fox_pro_pruned';
const KEPT = `${root}target/faults_browser.json`;
/** Seconds of one call of the page; a point is tried to its end. */
const AT_ONCE = 60;
/** Points of a sweep where not every one is tried: losses, and allocations. */
const LOSSES = 12;
const ALLOCATIONS = 6;
/** Of the losses every so manieth is tried for good, too. */
const FOR_GOOD = 5;

/** What happens, and the fault. A life's model goes on from point to point; a load's is another one each time. */
const SWEEPS = [
  { what: 'a load', fault: 'lost' },
  { what: 'a load', fault: 'memory' },
  { what: 'a load', fault: 'invalid' },
  { what: "a model's life", fault: 'lost' },
  { what: "a model's life", fault: 'memory' },
  { what: "a model's life", fault: 'invalid' },
  { what: "a model's recovery", fault: 'memory' },
  { what: "a model's recovery", fault: 'invalid' },
];

/**
 * In the page: plays a sweep's points from `first` on, for so many seconds. Gives how many points there are, the next to try, and of each that was
 * tried what came of it: `same`, or the code of a typed error. Anything else is thrown.
 */
async function play(Kitfox, { collect }, { url, what, fault, first, most, seconds, forGood }) {
  const until = Date.now() + 1000 * seconds;
  const options = { device: 'gpu', baseline: true, context: 128 };
  const load = (query = '') => Kitfox.load(url, { ...options, workerUrl: `/tests/losing-worker.mjs${query}` });
  const life = async (fox) => {
    const session = await fox.session();
    try {
      const [said, sampled] = [[], { maxTokens: 6, seed: 1, temperature: 1, ignoreEos: true }];
      const say = async (from, more) => said.push(...(await collect(from.generate({ ...sampled, ...more }))).ids);
      await session.append('The fox said');
      const mark = await session.mark();
      const fork = await session.fork();
      try {
        await say(session, {});
        said.push((await session.save()).byteLength);
        await say(fork, { seed: 2 });
        await fork.restore(await session.save());
        await say(fork, { maxTokens: 3 });
      } finally {
        await fork.dispose();
      }
      await session.rewind(mark);
      await say(session, { maxTokens: 3, logprobs: true });
      return said.join();
    } finally {
      await session.dispose();
    }
  };
  const points = async () => (await passed())[fault === 'lost' ? 'all' : 'allocations'];
  // What it is without a fault, twice: the first finds out what the second recalls, and makes what it makes again.
  let [fox, want, there] = [undefined, undefined, 0];
  for (let time = 0; time < 2; time += 1) {
    fox?.dispose();
    fox = await load();
    const ofLoad = await points();
    want = await life(fox);
    await points();
    if (what !== 'a load') {
      if (what === "a model's recovery") await lose(0);
      if ((await life(fox)) !== want) throw new Error('two lives differ');
    }
    there = what === 'a load' ? ofLoad : await points();
  }
  const came = [];
  // A typed error, after which a next call or load gives the same; or the same at once.
  const outcome = async (place, work, next) => {
    const failed = ({ code, message }) => code ?? `no code: ${message}`;
    const code = await work().then((got) => (got === want ? 'same' : `other: ${got}`), failed);
    const allowed = fault === 'lost' ? ['same', 'device-lost'] : ['same', 'out-of-memory', 'gpu'];
    if (!allowed.includes(code)) throw new Error(`${place}: ${code}, not ${want}`);
    came.push(code);
    const again = await next();
    if (again !== want) throw new Error(`${place}: ${code}, and then ${again}, not ${want}`);
  };
  const whole = async (query) => {
    const one = await load(query);
    try {
      return await life(one);
    } finally {
      one.dispose();
    }
  };
  const step = Math.max(1, Math.ceil(there / most));
  let at = first;
  for (; at <= there && Date.now() < until; at += step) {
    const place = `${what}: ${fault} at point ${at} of ${there}`;
    if (what === 'a load') {
      const query = fault === 'lost' ? `?lose=${at}` : `?refuse=${at}&kind=${fault}`;
      await outcome(place, () => whole(query), async () => (came.at(-1) === 'same' ? want : whole()));
      if (fault === 'lost' && Math.floor(at / step) % forGood === 0) await outcome(`${place}, for good`, () => whole(`${query}&back=no`), whole);
    } else {
      if (what === "a model's recovery") await lose(0);
      await (fault === 'lost' ? loseAt(at, false) : refuse(at, fault));
      await outcome(place, () => life(fox), async () => (await refuse(Infinity), life(fox)));
      if (fault === 'lost' && Math.floor(at / step) % forGood === 0) {
        await loseAt(at, true);
        await outcome(`${place}, for good`, () => life(fox), async () => (await loseAt(Infinity, false), life(fox)));
      }
    }
  }
  fox.dispose();
  return { there, next: at, came };
}

const line = (cells) => `| ${cells.join(' | ')} |`;

function report(revision, version, rows) {
  const head = ['where', 'fault', 'points', 'tried', 'same result', 'typed error', 'otherwise'];
  const cells = rows.map(({ what, fault, there, came }) => {
    const same = came.filter((code) => code === 'same').length;
    return [what, { lost: 'lost', memory: 'out of memory', invalid: 'validation' }[fault], there, came.length, same, came.length - same, 0];
  });
  const total = ['all', '', ...[2, 3, 4, 5, 6].map((column) => cells.reduce((sum, row) => sum + row[column], 0))];
  return `# Faults of the device, in a browser

What happens in ${version} on SwiftShader when an allocation (a buffer or a pipeline) is refused or invalid, or the device is destroyed, at points
(allocation, write, submit, read) of which a spread or every one is tried: \`npm run evidence faults_browser\`, commit ${revision}. A model of two
small layers on a device with no feature and default limits. A run gives the same ids as without a fault, or one typed error, and the next call (of a load:
the next load) gives the same; anything else ends the run, so that the last column is 0. Every ${FOR_GOOD}th loss is tried for good, too: from that point on each
device is destroyed. A life after the first allocates nothing.

${[head, head.map(() => '---'), ...cells, total].map(line).join('\n')}
`;
}

await main(async () => {
  const words = process.argv.slice(2);
  if (words.some((word) => !['again', 'every'].includes(word))) throw new Error(`expected again, every, or nothing, got ${words.join(' ')}`);
  if (words.includes('again')) await rm(KEPT, { force: true });
  const every = words.includes('every');
  const revision = (await run('git', ['rev-parse', '--short', 'HEAD'], { quiet: true })).trim();
  const kept = existsSync(KEPT) ? JSON.parse(await readFile(KEPT, 'utf8')) : { revision, every, rows: [] };
  if (kept.revision !== revision || kept.every !== every) throw new Error(`${KEPT} is of commit ${kept.revision} or another spread: begin anew with again`);
  const server = await serveDeep(MODEL, 2, { bytes: true });
  const browser = await chromium();
  try {
    for (const { what, fault } of SWEEPS) {
      let row = kept.rows.find((row) => row.what === what && row.fault === fault);
      if (row === undefined) kept.rows.push((row = { what, fault, there: null, next: 1, came: [] }));
      const most = every ? Infinity : fault === 'lost' ? LOSSES : ALLOCATIONS;
      while (row.there === null || row.next <= row.there) {
        const { page } = await openPage(browser, `${server.url}/blank`);
        const worker = () => page.workers().at(-1);
        // What JSON cannot say comes as null.
        await page.exposeFunction('lose', (n) => worker().evaluate((n) => self.lose(n), n));
        await page.exposeFunction('loseAt', (n, forGood) => worker().evaluate((n, forGood) => self.loseAt(n ?? Infinity, forGood), n, forGood));
        await page.exposeFunction('refuse', (n, kind) => worker().evaluate((n, kind) => self.refuse(n ?? Infinity, kind), n, kind));
        await page.exposeFunction('passed', () => worker().evaluate(() => self.passed()));
        const asked = { url: `/deep/${MODEL}.gguf`, what, fault, first: row.next, most, seconds: AT_ONCE, forGood: FOR_GOOD };
        const { there, next, came } = await inPage(page, play, asked);
        await page.close();
        Object.assign(row, { there, next });
        row.came.push(...came);
        await writeFile(KEPT, JSON.stringify(kept));
        console.log(`${what}, ${fault}: ${Math.min(row.next - 1, there)} of ${there} points, ${row.came.length} runs`);
      }
    }
    const told = report(revision, await browser.version(), kept.rows);
    await writeFile(`${root}tests/evidence/faults_browser.md`, told);
    console.log(told);
  } finally {
    await browser.close();
    await server.close();
  }
});
