// The package's worker with every call of WebGPU counted. Imports run in this order, before the load's message is let in.

import './counting.mjs';
import '/kitfox/worker.js';
