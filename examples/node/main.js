// Writes a text: node main.js MODEL [PROMPT] [DEVICE]. The model is a path or a URL, the device `auto`, `gpu` or `cpu`.

import { Kitfox } from 'kitfox';

const [model, prompt = 'The old fox stopped at the edge of the wood, and', device = 'auto'] = process.argv.slice(2);
if (model === undefined) {
  console.error('node main.js MODEL [PROMPT] [DEVICE]');
  process.exit(2);
}

const ends = new AbortController();
process.once('SIGINT', () => ends.abort());

let fox;
try {
  fox = await Kitfox.load(model, { device, signal: ends.signal });
  console.error(`on ${fox.info.device}`);
  process.stdout.write(prompt);
  // Temperature 0: the likeliest token each time, so that every run writes the same.
  const story = fox.generate(prompt, { maxTokens: 16, temperature: 0, signal: ends.signal });
  const ids = [];
  for await (const piece of story) {
    process.stdout.write(piece.text);
    ids.push(...piece.ids);
  }
  process.stdout.write('\n');
  console.error(`${story.summary.tokens} tokens, ${story.summary.tokensPerSecond.toFixed(1)} a second`);
  // A text may be spelled in several ways: these are its tokens.
  console.error(`ids: ${JSON.stringify(ids)}`);
} catch (error) {
  console.error(`\n${error.code}: ${error.message}`);
  process.exitCode = 1;
} finally {
  // The worker would keep the program alive.
  fox?.dispose();
}
