// `npm start`: builds the wasm module and the package, then serves the page and rebuilds it as its files change.

import { buildPackage, buildWasm } from './build-web.mjs';
import { bin, main } from './shared.mjs';

await main(async () => {
  await buildWasm();
  await buildPackage();
  await bin('vite', ['www', ...process.argv.slice(2)]);
});
