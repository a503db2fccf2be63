// In a worker: counts every call of WebGPU by name, and tells the counts with each phase of a measurement, and at the end of a text, on the
// channel `webgpu-counts`.

// Of buffers it tells, too, how many live and their bytes: what was made, less what was destroyed.

const counts = { liveBuffers: 0, liveBytes: 0 };
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

const { createBuffer } = GPUDevice.prototype;
GPUDevice.prototype.createBuffer = function (descriptor) {
  const buffer = Reflect.apply(createBuffer, this, [descriptor]);
  counts.liveBuffers += 1;
  counts.liveBytes += buffer.size;
  return buffer;
};
const { destroy } = GPUBuffer.prototype;
const destroyed = new WeakSet();
GPUBuffer.prototype.destroy = function () {
  if (!destroyed.has(this)) {
    destroyed.add(this);
    counts.liveBuffers -= 1;
    counts.liveBytes -= this.size;
  }
  return Reflect.apply(destroy, this, []);
};

const channel = new BroadcastChannel('webgpu-counts');
const say = self.postMessage.bind(self);
self.postMessage = (message, transfer) => {
  if (message.type === 'measured' || message.type === 'done') channel.postMessage({ ...counts });
  say(message, transfer);
};
