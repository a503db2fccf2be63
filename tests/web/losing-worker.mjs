// The package's worker with a device that a test can take. Imports run in this order, before the load's message is let in.

import './losing.mjs';
import '/kitfox/worker.js';
