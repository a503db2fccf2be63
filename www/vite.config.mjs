import { createHash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { cp, readFile, readdir, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import models from './models.json' with { type: 'json' };
import { hostsOf, policyOf } from './policy.mjs';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

/** The built pages state their policy themselves, for hosts that send no headers. */
function policy(models) {
  return {
    name: 'policy',
    apply: 'build',
    transformIndexHtml: () => [
      { tag: 'meta', attrs: { 'http-equiv': 'content-security-policy', content: policyOf(models) }, injectTo: 'head-prepend' },
    ],
  };
}

/** The service worker, with the list of the build's files and their hashes in front, models aside. */
function serviceWorker(models, out) {
  return {
    name: 'service-worker',
    apply: 'build',
    async writeBundle() {
      const all = await readdir(out, { recursive: true, withFileTypes: true });
      const names = all.filter((one) => one.isFile()).map((one) => relative(out, join(one.parentPath, one.name)).replaceAll('\\', '/'));
      const source = await readFile(here('./sw.js'), 'utf8');
      const hash = createHash('sha256').update(source);
      const files = {};
      for (const name of names.filter((name) => name !== 'sw.js' && !name.startsWith('models/')).sort()) {
        const bytes = await readFile(join(out, name));
        hash.update(name).update(bytes);
        files[name] = `sha256-${createHash('sha256').update(bytes).digest('base64')}`;
      }
      const constants = { VERSION: hash.digest('hex').slice(0, 16), FILES: files, HOSTS: hostsOf(models), POLICY: policyOf(models) };
      const lines = Object.entries(constants).map(([name, value]) => `const ${name} = ${JSON.stringify(value)};\n`);
      await writeFile(join(out, 'sw.js'), [...lines, source].join(''));
    },
  };
}

/** Models are files beside the page: copied into a build as they are, and a missing one is a 404, not the page itself. */
function modelFiles(out) {
  return {
    name: 'models',
    configureServer(server) {
      server.middlewares.use((request, response, next) => {
        const { pathname } = new URL(request.url, 'http://page');
        if (!pathname.startsWith('/models/')) return next();
        const path = here(`.${pathname}`);
        if (existsSync(path) && path.endsWith('.gguf')) createReadStream(path).pipe(response);
        else response.writeHead(404).end();
      });
    },
    async closeBundle() {
      if (existsSync(here('./models'))) await cp(here('./models'), join(out, 'models'), { recursive: true });
    },
  };
}

/** The build of a page with these models into a folder. */
export const pageOf = (models, out) => ({
  root: here('.'),
  base: './', // the built page works in any folder
  publicDir: false,
  plugins: [policy(models), serviceWorker(models, out), modelFiles(out)],
  worker: { format: 'es' },
  build: { outDir: out, target: 'es2022', assetsInlineLimit: 0, modulePreload: { polyfill: false }, rolldownOptions: { input: [here('./index.html'), here('./bench.html')] } },
  optimizeDeps: { exclude: ['kitfox'] }, // its worker and wasm are found relative to its own files
});

export default defineConfig(pageOf(models, here('./dist')));
