// The worker without what its address names: `?opfs`, `?opfs&caches`, `?quota`, `?full`.

import './without.mjs';
import '/kitfox/worker.js';
