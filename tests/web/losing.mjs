// In a worker: `lose(n)` destroys the GPU's device at the n-th submit or read from now on, or at once.

let device;
let left = Infinity;

const { requestDevice } = GPUAdapter.prototype;
GPUAdapter.prototype.requestDevice = async function (...given) {
  return (device = await Reflect.apply(requestDevice, this, given));
};

const passing = (methods, name) => {
  const method = methods[name];
  methods[name] = function (...given) {
    left -= 1;
    if (left === 0) device.destroy();
    return Reflect.apply(method, this, given);
  };
};
passing(GPUQueue.prototype, 'submit');
passing(GPUBuffer.prototype, 'mapAsync');

self.lose = (n) => {
  left = n;
  if (n === 0) device.destroy();
};
