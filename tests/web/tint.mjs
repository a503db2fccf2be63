// Judges every shader with Tint, Chromium's WGSL compiler, on Dawn's null device: no GPU and no browser needed.
//
//     node tests/web/tint.mjs FOLDER
//
// FOLDER holds what `KITFOX_DUMP_SHADERS=FOLDER cargo test --release --test kernels shaders` writes.

import { readFile, readdir } from 'node:fs/promises';
import path from 'node:path';
import { create, globals } from 'webgpu';

/** How a variant begins that may find more than the baseline. */
const BEYOND = '// beyond the baseline: ';

const folder = process.argv[2];
const files = (await readdir(folder)).filter((name) => name.endsWith('.wgsl')).sort();
if (files.length === 0) {
  console.error(`error: ${folder} holds no .wgsl file`);
  process.exit(1);
}

Object.assign(globalThis, globals);
// Held to the end: collected before its devices, Dawn takes the process down.
globalThis.gpu = create(['backend=null']);
// WebGPU's default limits and no feature: what every browser has.
const baseline = await (await globalThis.gpu.requestAdapter()).requestDevice();
// What variants may find that say so.
// An adapter gives one device.
const adapter = await globalThis.gpu.requestAdapter();
const { maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX, maxComputeWorkgroupStorageSize } = adapter.limits;
const equipped = await adapter.requestDevice({
  requiredFeatures: ['subgroups', 'shader-f16'],
  requiredLimits: { maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX, maxComputeWorkgroupStorageSize },
});

let refused = 0;
for (const name of files) {
  const code = await readFile(path.join(folder, name), 'utf8');
  const device = code.startsWith(BEYOND) ? equipped : baseline;
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code });
  // The null device has no more workgroup memory than the baseline: of a variant that wants more it judges the text.
  const wanted = Number(/WorkgroupBytes\((\d+)\)/.exec(code.split('\n', 1)[0])?.[1] ?? 0);
  if (device === baseline || wanted <= maxComputeWorkgroupStorageSize) {
    device.createComputePipeline({ layout: 'auto', compute: { module, entryPoint: 'main' } });
  }
  const error = await device.popErrorScope();
  if (error === null) continue;
  refused += 1;
  console.error(`Tint refuses ${name}:\n${error.message}\n`);
}
console.log(`Tint: ${files.length - refused} passed, ${refused} failed`);
process.exit(refused === 0 ? 0 : 1);
