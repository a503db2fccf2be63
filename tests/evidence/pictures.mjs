// The pictures of the README: the page as it shows what the model sees of a text, the keys that stay alive as a book is read, and what
// each head of the demo model forgets.
//
//     npm run build && npm run evidence pictures
//
// The text is the excerpt in tests/fixtures/books. They are written to page.png, live_keys.png and gates.png beside this file.

import { main, root, run } from '../../tools/shared.mjs';
import { chromium } from '../web/browsers.mjs';
import { openDesk } from '../web/desk.mjs';
import { startServer } from '../web/server.mjs';
import { excerpt } from './texts.mjs';

const OPENING = 'The old fox stopped at the edge of the wood, and listened. Somewhere behind the hedge';

async function picturePage(file) {
  const server = await startServer();
  const browser = await chromium({ webgpu: false });
  try {
    const { page, desk } = await openDesk(browser, server.url);
    await page.setViewport({ width: 1280, height: 760 });
    await desk.set({ prompt: OPENING, seed: '7', maxTokens: '220', temperature: '0.8' });
    await desk.press('go');
    await page.keyboard.down('Control');
    await page.keyboard.press('/');
    await page.keyboard.up('Control');
    await page.waitForSelector('#tokens span span');
    await page.waitForFunction(() => document.getElementById('tokens').getAttribute('aria-busy') !== 'true');
    await page.screenshot({ path: file });
  } finally {
    await browser.close();
    await server.close();
  }
}

await main(async () => {
  await picturePage(`${root}tests/evidence/page.png`);
  await run('cargo', ['build', '--release']);
  const kitfox = `${root}target/release/kitfox`;
  const plot = ['-o', `${root}target/live_keys.csv`, '--plot', `${root}tests/evidence/live_keys.png`];
  await run(kitfox, ['eval', 'live-keys', '-f', excerpt, '--device', 'cpu', ...plot]);
  await run(kitfox, ['inspect', 'gates', '-f', excerpt, '-c', '474', '--device', 'cpu', '-o', `${root}tests/evidence/gates.png`]);
});
