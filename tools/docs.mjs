// `npm run docs`, and the ring `docs`: the API pages of the crate and of the npm package, in target/doc and target/docs/web. A warning of
// either is an error.

import { existsSync } from 'node:fs';
import { buildPackage } from './build-web.mjs';
import { main, root, run } from './shared.mjs';

/** Both; the wasm module and its types must be built. */
export async function buildDocs() {
  await run('cargo', ['doc', '--release', '--no-deps', '--lib'], { env: { RUSTDOCFLAGS: '-D warnings' } });
  // The generated types of the wasm module are part of the package's.
  if (!existsSync(`${root}web/dist/wasm/kitfox.d.ts`)) throw new Error('build first: npm run build');
  await buildPackage();
  if (!existsSync(`${root}tools/docs/node_modules/typedoc`)) {
    await run('npm', ['ci', '--prefix', 'tools/docs', '--no-audit', '--no-fund', '--ignore-scripts']);
  }
  const options = ['--tsconfig', 'web/tsconfig.json', '--entryPoints', 'web/kitfox.ts', '--readme', 'web/README.md', '--name', 'kitfox'];
  const strict = ['--disableSources', '--excludeInternal', '--treatWarningsAsErrors', '--out', 'target/docs/web'];
  await run(process.execPath, ['tools/docs/node_modules/typedoc/bin/typedoc', ...options, ...strict]);
}

if (process.argv[1] === import.meta.filename) await main(buildDocs);
