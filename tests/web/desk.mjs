// The page as a person uses it: opened, loaded, written on, and read.

import { openPage } from './browsers.mjs';

/** Opens the desk on the CPU with its model loaded; `act` does things on it. */
export async function openDesk(browser, url, { query = '?device=cpu', prepare } = {}) {
  const opened = await openPage(browser, 'about:blank');
  const { page } = opened;
  await prepare?.(page);
  await page.goto(`${url}/${query}`);
  const desk = new Desk(page);
  await desk.loaded();
  return { ...opened, desk };
}

class Desk {
  constructor(page) {
    this.page = page;
  }

  /** The load has ended, one way or the other. */
  loaded() {
    return this.page.waitForFunction(() => document.getElementById('loading').hidden && !document.getElementById('go').disabled);
  }

  /** What is seen of an element. */
  text(id) {
    return this.page.$eval(`#${id}`, (element) => (element.hidden ? '' : element.textContent));
  }

  /** The text, which is the same in the text area and behind it. */
  async story() {
    const [area, seen, cut] = await this.page.evaluate(() => {
      const [area, behind] = [document.getElementById('prompt'), document.getElementById('output')];
      return [area.value, behind.textContent, area.scrollHeight - area.clientHeight];
    });
    if (area !== seen) throw new Error(`the text area has ${JSON.stringify(area)}, behind it is ${JSON.stringify(seen)}`);
    if (cut > 0) throw new Error(`the text area breaks its lines elsewhere: ${cut} pixels are cut off`);
    return area;
  }

  /** Whose words they are, as pairs. */
  hands() {
    return this.page.$$eval('#output span', (spans) => {
      const out = [];
      for (const { className, textContent } of spans) {
        const by = className.split(' ')[0];
        if (out.at(-1)?.[0] === by) out.at(-1)[1] += textContent;
        else out.push([by, textContent]);
      }
      return out;
    });
  }

  /** Fills in fields as a person does: each hears of it. */
  set(fields) {
    return this.page.evaluate((fields) => {
      for (const [id, value] of Object.entries(fields)) {
        const field = document.getElementById(id);
        field.value = value;
        field.dispatchEvent(new Event('input', { bubbles: true }));
      }
    }, fields);
  }

  /** Nothing is being written. */
  idle() {
    return this.page.waitForFunction(() => document.getElementById('stop').disabled && !document.getElementById('stats').textContent.endsWith('…'));
  }

  /** Presses a button and waits for what it does. */
  async press(id) {
    await this.page.click(`#${id}`);
    await this.idle();
  }

  /** Continues by so many of the likeliest tokens. */
  async go(tokens) {
    await this.set({ temperature: '0', maxTokens: String(tokens) });
    await this.press('go');
  }

  /** Starts to write without end, and waits for so many characters of it. */
  async begin(characters) {
    await this.set({ temperature: '0', maxTokens: '3000' });
    await this.page.click('#go');
    const start = (await this.page.$eval('#prompt', ({ value }) => value)).length;
    await this.page.waitForFunction((end) => document.getElementById('output').textContent.length > end, {}, start + characters);
  }

  async chord(...keys) {
    for (const key of keys.slice(0, -1)) await this.page.keyboard.down(key);
    await this.page.keyboard.press(keys.at(-1));
    for (const key of keys.slice(0, -1)) await this.page.keyboard.up(key);
  }

  /** The names of the places to go back to, those that are marked with a star. */
  points() {
    return this.page.$$eval('#points button:not(.release)', (buttons) => buttons.map(({ ariaLabel, className }) => `${className === 'marked' ? '* ' : ''}${ariaLabel}`));
  }
}
