import assert from 'node:assert/strict';
import test from 'node:test';
import { chooseDevice } from '../dist/device.js';

const gpu = (info) => ({ requestAdapter: async () => (info === null ? null : { info }) });
const hardware = gpu({ isFallbackAdapter: false, vendor: 'acme' });
const software = gpu({ isFallbackAdapter: true, vendor: 'google', architecture: 'swiftshader' });
const refusing = {
  requestAdapter: async () => {
    throw new Error('Blocked by policy.');
  },
};

test('cpu never looks at the GPU', async () => assert.deepEqual(await chooseDevice('cpu', refusing), { device: 'cpu' }));

test('auto takes hardware, and says why it takes the CPU', async () => {
  assert.deepEqual(await chooseDevice('auto', hardware), { device: 'auto' });
  for (const [have, note] of [
    [software, /software one \(google swiftshader\)/],
    [gpu(null), /no graphics adapter/],
    [undefined, /no WebGPU/],
    [refusing, /refused a WebGPU adapter: Blocked by policy$/],
  ]) {
    const choice = await chooseDevice('auto', have);
    assert.equal(choice.device, 'cpu');
    assert.match(choice.note, note);
  }
});

test('an adapter that the browser never gives is done without after a minute', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const hung = { requestAdapter: () => new Promise(() => {}) };
  const choices = [chooseDevice('auto', hung), chooseDevice('gpu', hung).catch(({ code }) => code)];
  t.mock.timers.tick(60_000);
  const [auto, gpu] = await Promise.all(choices);
  assert.deepEqual([auto.device, gpu], ['cpu', 'no-gpu']);
  assert.match(auto.note, /refused a WebGPU adapter: nothing came for 60 s$/);
});

test('gpu takes any adapter, and fails without one', async () => {
  assert.deepEqual(await chooseDevice('gpu', hardware), { device: 'gpu' });
  assert.deepEqual(await chooseDevice('gpu', software), { device: 'gpu' });
  for (const have of [undefined, gpu(null), refusing]) await assert.rejects(chooseDevice('gpu', have), { code: 'no-gpu' });
});
