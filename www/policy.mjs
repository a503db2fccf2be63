// What the page may do and fetch, by its list of models: read by the build, which writes it into the pages, and by the page itself.

/**
 * The origins of other hosts that models of the list are on.
 * @param {readonly { url: string }[]} models
 * @returns {string[]}
 */
export function hostsOf(models) {
  const absolute = models.filter(({ url }) => /^[a-z][a-z0-9+.-]*:/i.test(url));
  return [...new Set(absolute.map(({ url }) => new URL(url).origin))].sort();
}

/**
 * The content security policy: nothing but the page's own files, its worker and its wasm, and the models of the list.
 * @param {readonly { url: string }[]} models
 * @returns {string}
 */
export function policyOf(models) {
  const rules = {
    'default-src': ["'none'"],
    'connect-src': ["'self'", ...hostsOf(models)],
    'script-src': ["'self'", "'wasm-unsafe-eval'"],
    'worker-src': ["'self'"],
    'style-src': ["'self'"],
    'img-src': ["'self'"],
    'base-uri': ["'none'"],
    'form-action': ["'none'"],
  };
  return Object.entries(rules)
    .map(([name, values]) => `${name} ${values.join(' ')}`)
    .join('; ');
}
