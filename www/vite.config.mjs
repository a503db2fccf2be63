import { createReadStream, existsSync } from 'node:fs';
import { cp } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import models from './models.json' with { type: 'json' };
import { policyOf } from './policy.mjs';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

/** The built pages state their policy themselves, for hosts that send no headers. */
function policy() {
  return {
    name: 'policy',
    apply: 'build',
    transformIndexHtml: () => [
      { tag: 'meta', attrs: { 'http-equiv': 'content-security-policy', content: policyOf(models) }, injectTo: 'head-prepend' },
    ],
  };
}

/** Models are files beside the page: copied into a build as they are, and a missing one is a 404, not the page itself. */
function modelFiles() {
  return {
    name: 'models',
    configureServer(server) {
      server.middlewares.use('/models', (request, response) => {
        const path = here(`./models${new URL(request.url, 'http://page').pathname}`);
        if (existsSync(path) && path.endsWith('.gguf')) createReadStream(path).pipe(response);
        else response.writeHead(404).end();
      });
    },
    async closeBundle() {
      if (existsSync(here('./models'))) await cp(here('./models'), here('./dist/models'), { recursive: true });
    },
  };
}

export default defineConfig({
  root: here('.'),
  base: './', // the built page works in any folder
  publicDir: false,
  plugins: [policy(), modelFiles()],
  worker: { format: 'es' },
  build: { target: 'es2022', assetsInlineLimit: 0, modulePreload: { polyfill: false }, rolldownOptions: { input: [here('./index.html'), here('./bench.html')] } },
  optimizeDeps: { exclude: ['kitfox'] }, // its worker and wasm are found relative to its own files
});
