// In a worker: `lose(n)` destroys the GPU's device at the n-th submit or read from now on, or at once; `refuse(n, kind)` refuses the n-th
// allocation (buffer or pipeline) from now on, as no memory is left (`memory`) or as one that is invalid; `loseAt(n, forGood)` destroys the device
// at the n-th point (allocation, write, submit, read) from now on, and with `forGood` each device there is at every later one. The worker's
// address says what comes while a model is loaded: `?lose=n` (`&back=no`: for good), `?refuse=n&kind=memory`. `passed()` tells how many
// allocations, and how many points of all kinds, there were since `passed()` was asked for the last time.

let device;
let left = Infinity;
let leftOfAll = Infinity;
let lostForGood = false;
let allocationsLeft = Infinity;
let kind;
let allocations = 0;
let all = 0;

const { requestDevice } = GPUAdapter.prototype;
GPUAdapter.prototype.requestDevice = async function (...given) {
  return (device = await Reflect.apply(requestDevice, this, given));
};

const count = () => {
  all += 1;
  leftOfAll -= 1;
  if (leftOfAll === 0 || (lostForGood && leftOfAll < 0)) device.destroy();
};

const passing = (methods, name, waited) => {
  const method = methods[name];
  methods[name] = function (...given) {
    count();
    if (waited) left -= 1;
    if (waited && left === 0) device.destroy();
    return Reflect.apply(method, this, given);
  };
};
passing(GPUQueue.prototype, 'submit', true);
passing(GPUBuffer.prototype, 'mapAsync', true);
passing(GPUQueue.prototype, 'writeBuffer', false);

// What error scopes are to tell beside what they caught.
const scopes = [];
const { pushErrorScope, popErrorScope } = GPUDevice.prototype;
GPUDevice.prototype.pushErrorScope = function (filter) {
  scopes.push({ filter, error: null });
  return Reflect.apply(pushErrorScope, this, [filter]);
};
GPUDevice.prototype.popErrorScope = async function () {
  const { error } = scopes.pop();
  const caught = await Reflect.apply(popErrorScope, this, []);
  return error ?? caught;
};

/** Counts what a method makes; what is refused is made as `spoiled` says, so that it is really invalid, and so is what is done with it. */
const allocating = (name, spoiled) => {
  const make = GPUDevice.prototype[name];
  GPUDevice.prototype[name] = function (described) {
    allocations += 1;
    count();
    allocationsLeft -= 1;
    if (allocationsLeft !== 0) return Reflect.apply(make, this, [described]);
    const invalid = () => Reflect.apply(make, this, [spoiled(described)]);
    const scope = scopes.findLast(({ filter }) => filter === 'out-of-memory');
    if (kind !== 'memory' || !scope) return invalid();
    scope.error = new GPUOutOfMemoryError('no memory is left (a test)');
    Reflect.apply(pushErrorScope, this, ['validation']);
    const made = invalid();
    void Reflect.apply(popErrorScope, this, []);
    return made;
  };
};
// No device takes these two usages together, and no shader here has an entry of that name.
allocating('createBuffer', (described) => ({ ...described, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.STORAGE }));
allocating('createComputePipeline', (described) => ({ ...described, compute: { ...described.compute, entryPoint: 'none' } }));

self.lose = (n) => {
  left = n;
  if (n === 0) device.destroy();
};
self.loseAt = (n, forGood) => {
  [leftOfAll, lostForGood] = [n, forGood];
};
self.refuse = (n, as) => {
  [allocationsLeft, kind] = [n, as];
};
self.passed = () => {
  const passed = { allocations, all };
  [allocations, all] = [0, 0];
  return passed;
};

const asked = new URLSearchParams(self.location.search);
if (asked.has('lose')) self.loseAt(Number(asked.get('lose')), asked.get('back') === 'no');
if (asked.has('refuse')) self.refuse(Number(asked.get('refuse')), asked.get('kind'));
