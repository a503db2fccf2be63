// A user's program under each tool that people use: installed from what `npm pack` makes, built without a warning, run in Chromium (or
// Node); all write what the native program writes. The folders of examples and of tests/web/fixtures are what such a user would have.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { cp, mkdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { chromium, openPage, until } from './browsers.mjs';
import { kitfox, native } from './native.mjs';
import { model, root, startServer } from './server.mjs';

/** Each with the folder that its build leaves for a server. */
const APPS = { plain: '.', react: 'dist', webpack: 'dist', esbuild: 'dist', next: 'dist' };
/** Those that people start from: they show the text, and write when they are asked to. */
const EXAMPLES = ['plain', 'react', 'node'];
const MOST_PACKED_BYTES = 2_000_000;
const PROMPT = 'The old fox stopped at the edge of the wood, and';

const exec = promisify(execFile);
/** Outside the repository, whose packages the apps must not find; one for each clone. */
const place = path.join(tmpdir(), `kitfox-apps-${createHash('sha256').update(root).digest('hex').slice(0, 8)}`);
/** Nobody's telemetry, and no word of it or of a build server's caches in the output. */
const env = { ...process.env, CI: '', NEXT_TELEMETRY_DISABLED: '1', NO_COLOR: '1', npm_config_update_notifier: 'false' };

let tarball;
let expected;
let browser;
before(async () => {
  await mkdir(place, { recursive: true });
  const { stdout } = await exec('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', place], { cwd: path.join(root, 'web') });
  const [packed] = JSON.parse(stdout);
  tarball = path.join(place, packed.filename);
  console.log(`npm pack: ${packed.size} bytes (at most ${MOST_PACKED_BYTES}), ${packed.files.length} files`);
  assert.ok(packed.size <= MOST_PACKED_BYTES);
  // Where the examples' own `file:../../web` leads to.
  await rm(path.join(place, 'web'), { recursive: true, force: true });
  await mkdir(path.join(place, 'web'));
  await exec('tar', ['-xf', tarball, '--strip-components=1', '-C', path.join(place, 'web')]);
  expected = await native(PROMPT, 16);
  assert.equal(expected.ids.length, 16);
  browser = await chromium({ webgpu: false });
});
after(() => browser?.close());

/** A fresh copy with its packages; those of a run before are kept while its lock file is the same. */
async function installed(name) {
  const [from, to] = [path.join(root, EXAMPLES.includes(name) ? 'examples' : 'tests/web/fixtures', name), path.join(place, 'apps', name)];
  const lock = await readFile(path.join(from, 'package-lock.json'), 'utf8').catch(() => '');
  const had = await readFile(path.join(to, 'node_modules/.lock'), 'utf8').catch(() => undefined);
  if (had !== lock) await rm(to, { recursive: true, force: true });
  await cp(from, to, { recursive: true });
  const npm = (...args) => exec('npm', [...args, '--no-audit', '--no-fund', '--ignore-scripts'], { cwd: to, env });
  if (had !== lock && lock !== '') await npm('ci');
  await rm(path.join(to, 'node_modules/kitfox'), { recursive: true, force: true });
  await npm('install', '--no-save', '--no-package-lock', tarball);
  assert.ok((await stat(path.join(to, 'node_modules/kitfox/dist/kitfox.js'))).isFile());
  await writeFile(path.join(to, 'node_modules/.lock'), lock);
  return to;
}

/** Runs the build and gives what it said, without the lines of npm itself. */
async function built(folder) {
  await rm(path.join(folder, 'dist'), { recursive: true, force: true });
  const child = spawn('npm', ['run', 'build', '--silent'], { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (said += text));
  const code = await new Promise((resolve) => child.on('close', resolve));
  assert.equal(code, 0, said);
  return said;
}

for (const [name, output] of Object.entries(APPS)) {
  test(`an app with ${name} builds without a warning and writes what the native program writes`, async () => {
    const folder = await installed(name);
    const said = await built(folder);
    assert.doesNotMatch(said, /warn|⚠|deprecat|can't resolve|critical dependency/i);
    const server = await startServer([
      ['/models/', path.dirname(model)],
      ['/', path.join(folder, output)],
    ]);
    try {
      const { page, complaints } = await openPage(browser, `${server.url}/`);
      if (EXAMPLES.includes(name)) {
        await until(page, () => document.getElementById('write')?.disabled === false);
        await page.click('#write');
        await until(page, () => document.getElementById('status').textContent.startsWith('16 tokens, '));
        assert.equal(await page.$eval('output', ({ textContent }) => textContent), PROMPT + expected.text);
      } else {
        await until(page, () => document.body?.dataset.ids !== undefined);
      }
      // Two answers of other tokens may read the same.
      assert.deepEqual(JSON.parse(await page.$eval('[data-ids]', ({ dataset }) => dataset.ids)), expected.ids);
      assert.deepEqual(complaints, []);
      await page.close();
    } finally {
      await server.close();
    }
  });
}

test('a program in Node writes what the native program writes, from a file and from a server', async () => {
  const folder = await installed('node');
  const server = await startServer([['/models/', path.dirname(model)]]);
  try {
    const odd = 'what? 50%#1.gguf';
    await rm(path.join(folder, odd), { force: true });
    await symlink(model, path.join(folder, odd));
    for (const from of [path.relative(folder, model), `${server.url}/models/demo.gguf`, odd]) {
      const { stdout, stderr } = await exec(process.execPath, ['main.js', from, PROMPT, 'cpu'], { cwd: folder, env });
      assert.equal(stdout, `${PROMPT}${expected.text}\n`, from);
      assert.deepEqual(JSON.parse(/^ids: (.*)$/m.exec(stderr)[1]), expected.ids, from);
    }
    // No WebGPU there: asked for, it is an error of its own; not asked for, the CPU does.
    const refused = await exec(process.execPath, ['main.js', path.relative(folder, model), PROMPT, 'gpu'], { cwd: folder, env }).catch((error) => error);
    assert.match(String(refused.stderr), /Node has no WebGPU of its own, and the npm package webgpu is not installed/);
    const absent = await exec(process.execPath, ['main.js', 'absent.gguf', PROMPT, 'cpu'], { cwd: folder, env }).catch((error) => error);
    assert.match(String(absent.stderr), /^io: \S+absent\.gguf: cannot be read: no such file or directory \(ENOENT\)$/m);
  } finally {
    await server.close();
  }
});

/** Chromium's own, which Dawn runs on; Mesa's software driver lacks what it wants. */
const SWIFTSHADER = '/usr/lib/chromium/vk_swiftshader_icd.json';

test('a program in Node runs on the GPU through the package webgpu', { skip: !existsSync(SWIFTSHADER) }, async (t) => {
  const folder = await installed('node');
  const small = path.join(folder, 'small.gguf');
  await kitfox('convert', path.join(root, 'tests/fixtures/golden/fox_llama'), '-o', small, '--quant', 'f32');
  const script = `
    import { Kitfox } from 'kitfox';
    const run = async (device) => {
      const fox = await Kitfox.load('small.gguf', { device, baseline: true, kv: 'f32', scores: true, context: 32 });
      const logits = await fox.logits([1, 2, 3, 4, 5, 6, 7, 8]);
      const { info } = fox;
      fox.dispose();
      return { logits: [...logits], gpu: info.gpu, device: info.device };
    };
    console.log(JSON.stringify([await run('gpu'), await run('cpu'), await Kitfox.probe()]));`;
  await cp(path.join(root, 'node_modules/webgpu'), path.join(folder, 'node_modules/webgpu'), { recursive: true });
  const node = exec(process.execPath, ['--input-type=module', '-e', script], { cwd: folder, env: { ...env, VK_DRIVER_FILES: SWIFTSHADER } });
  const [gpu, cpu, probe] = JSON.parse((await node).stdout);
  assert.deepEqual([probe.webgpu, probe.software], [true, true], 'what is looked for is what a load finds');
  t.diagnostic(gpu.device);
  assert.deepEqual([gpu.gpu, cpu.gpu], [true, false]);
  const worst = Math.max(...gpu.logits.map((logit, ix) => Math.abs(logit - cpu.logits[ix])));
  assert.ok(gpu.logits.length > 0 && worst < 2e-4, `off by ${worst}`);
});
