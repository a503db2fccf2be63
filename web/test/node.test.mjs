// The package in Node as it is: what is found there, by a real worker, and that nothing keeps the program alive.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));

test('a probe says what a load would do, and the program ends by itself', async () => {
  const script = `
    import { Kitfox } from ${JSON.stringify(new URL('../dist/kitfox.js', import.meta.url).href)};
    const probe = await Kitfox.probe();
    const plan = await Kitfox.plan(${JSON.stringify(at('../../www/models/demo.gguf'))});
    const ended = await Kitfox.probe({ signal: AbortSignal.abort('enough') }).catch(({ code, cause }) => [code, cause]);
    console.log(JSON.stringify({ probe, plan, ended }));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], { timeout: 300_000 });
  const { probe, plan, ended } = JSON.parse(stdout);
  assert.equal(probe.reason, plan.deviceNote);
  assert.equal(plan.gpu, probe.webgpu && !probe.software);
  if (!plan.gpu) assert.match(probe.reason, /^Node has |^Node refused |^the only WebGPU adapter is a software one/);
  assert.deepEqual(ended, ['aborted', 'enough']);
});
