// In a worker: counts every call of WebGPU by name, and tells the counts with each phase of a measurement, and at the end of a text, on the
// channel `webgpu-counts`.

const counts = {};
for (const kind of ['GPUDevice', 'GPUQueue', 'GPUBuffer', 'GPUCommandEncoder', 'GPUComputePassEncoder']) {
  const methods = globalThis[kind].prototype;
  for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(methods))) {
    if (typeof value !== 'function' || name === 'constructor') continue;
    methods[name] = function (...given) {
      counts[name] = (counts[name] ?? 0) + 1;
      return Reflect.apply(value, this, given);
    };
  }
}

const channel = new BroadcastChannel('webgpu-counts');
const say = self.postMessage.bind(self);
self.postMessage = (message, transfer) => {
  if (message.type === 'measured' || message.type === 'done') channel.postMessage({ ...counts });
  say(message, transfer);
};
