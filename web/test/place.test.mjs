// What a name means in Node: a path, unless it has a scheme.

import assert from 'node:assert/strict';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { absolute } from '../dist/place.js';

test('any path is a path', () => {
  for (const name of ['a.gguf', 'a#b.gguf', 'what?.gguf', '50%.gguf', 'a%20b.gguf', 'ä b.gguf', '../x/a.gguf', '/models/a#.gguf', 'a:b/c.gguf', 'folder/http:/x', 'C:\\models\\x.gguf', '.', 'models/']) {
    const url = absolute('load', 'url', name);
    assert.match(url, /^file:\/\/\//);
    assert.equal(path.resolve(fileURLToPath(url)), path.resolve(name), name);
  }
});

test('what has a scheme is a URL', () => {
  for (const url of ['http://a.example/m.gguf?v=1#x', 'https://a.example/50%25.gguf', 'file:///models/a%20b.gguf', 'data:,x', 'blob:nodedata:0a']) {
    assert.equal(absolute('load', 'url', url), url);
    assert.equal(absolute('load', 'url', new URL(url)), url);
  }
  assert.throws(() => absolute('load', 'url', 'http://'), (error) => error.code === 'argument' && /load: url: expected a URL, got "http:\/\/"/.test(error.message));
  assert.throws(() => absolute('evict', 'url', 'http://'), { code: 'argument', message: /^evict: url: / });
});
