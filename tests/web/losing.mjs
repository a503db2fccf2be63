// In a worker: `lose(n)` destroys the GPU's device at the n-th submit or read from now on, or at once; `refuse(n, kind)` refuses the n-th
// buffer from now on, as no memory is left (`memory`) or as one that is invalid. The worker's address says what comes while a model is loaded:
// `?lose=n` (of buffers, submits and reads), `?refuse=n&kind=memory`. `passed()` tells how many buffers, and how many of all, there were.

let device;
let left = Infinity;
let leftOfAll = Infinity;
let buffersLeft = Infinity;
let kind;
let buffers = 0;
let all = 0;

const { requestDevice } = GPUAdapter.prototype;
GPUAdapter.prototype.requestDevice = async function (...given) {
  return (device = await Reflect.apply(requestDevice, this, given));
};

const count = () => {
  all += 1;
  leftOfAll -= 1;
  if (leftOfAll === 0) device.destroy();
};

const passing = (methods, name) => {
  const method = methods[name];
  methods[name] = function (...given) {
    count();
    left -= 1;
    if (left === 0) device.destroy();
    return Reflect.apply(method, this, given);
  };
};
passing(GPUQueue.prototype, 'submit');
passing(GPUBuffer.prototype, 'mapAsync');

// What error scopes are to tell beside what they caught.
const scopes = [];
const { pushErrorScope, popErrorScope, createBuffer } = GPUDevice.prototype;
GPUDevice.prototype.pushErrorScope = function (filter) {
  scopes.push({ filter, error: null });
  return Reflect.apply(pushErrorScope, this, [filter]);
};
GPUDevice.prototype.popErrorScope = async function () {
  const { error } = scopes.pop();
  const caught = await Reflect.apply(popErrorScope, this, []);
  return error ?? caught;
};

// No device takes these two together: the buffer is really invalid, and so is what is done with it.
const REFUSED = GPUBufferUsage.MAP_READ | GPUBufferUsage.STORAGE;
GPUDevice.prototype.createBuffer = function (described) {
  buffers += 1;
  count();
  buffersLeft -= 1;
  if (buffersLeft !== 0) return Reflect.apply(createBuffer, this, [described]);
  const make = () => Reflect.apply(createBuffer, this, [{ ...described, usage: REFUSED }]);
  const scope = scopes.findLast(({ filter }) => filter === 'out-of-memory');
  if (kind !== 'memory' || !scope) return make();
  scope.error = new GPUOutOfMemoryError('no memory is left (a test)');
  Reflect.apply(pushErrorScope, this, ['validation']);
  const buffer = make();
  void Reflect.apply(popErrorScope, this, []);
  return buffer;
};

self.lose = (n) => {
  left = n;
  if (n === 0) device.destroy();
};
self.refuse = (n, as) => {
  buffersLeft = n;
  kind = as;
};
self.passed = () => ({ buffers, all });

const asked = new URLSearchParams(self.location.search);
if (asked.has('lose')) leftOfAll = Number(asked.get('lose'));
if (asked.has('refuse')) self.refuse(Number(asked.get('refuse')), asked.get('kind'));
