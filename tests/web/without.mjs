// Takes things from this worker before the package's own module runs.

const lacks = new URLSearchParams(location.search);
if (lacks.has('opfs')) StorageManager.prototype.getDirectory = undefined;
if (lacks.has('caches')) Object.defineProperty(self, 'caches', { value: undefined });
if (lacks.has('quota')) StorageManager.prototype.estimate = async () => ({ quota: 5_000_000, usage: 4_000_000 });
if (lacks.has('locks')) Object.defineProperty(navigator, 'locks', { value: undefined });
if (lacks.has('full')) {
  // A disk that is full after two pieces.
  const { write } = FileSystemSyncAccessHandle.prototype;
  FileSystemSyncAccessHandle.prototype.write = function (from, options) {
    if (options.at >= 8 * 2 ** 20) throw new DOMException('the disk is full', 'QuotaExceededError');
    return write.call(this, from, options);
  };
}
