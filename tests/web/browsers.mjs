// The two browsers, headless. Each has WebGPU in software: Chromium on SwiftShader (its shaders go through Tint), Firefox on
// lavapipe (through naga).

import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import puppeteer from 'puppeteer-core';

const first = (...paths) => paths.find(existsSync);

/** Chromium; without `webgpu` it has no adapter at all. */
export function chromium({ webgpu = true } = {}) {
  return puppeteer.launch({
    browser: 'chrome',
    executablePath: first('/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'),
    headless: true,
    protocolTimeout: 600_000,
    args: [
      '--no-sandbox',
      ...(webgpu ? ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'] : []),
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--disable-dev-shm-usage',
    ],
  });
}

/** Firefox. Releases on Linux before 142, so also ESR 140, have no WebGPU whatever is set: see `refusal`. */
export function firefox() {
  return puppeteer.launch({
    browser: 'firefox',
    executablePath: first('/usr/bin/firefox-esr', '/usr/bin/firefox'),
    headless: true,
    protocolTimeout: 600_000,
    extraPrefsFirefox: {
      'dom.webgpu.enabled': true,
      'dom.webgpu.workers.enabled': true,
      'gfx.webgpu.ignore-blocklist': true,
    },
  });
}

/** Why a browser gives no WebGPU adapter to anybody, in its own words; undefined where it gives one. */
export async function refusal(browser, url) {
  const { page } = await openPage(browser, url);
  const why = await page.evaluate(() => navigator.gpu?.requestAdapter().then(() => undefined, ({ message }) => message));
  await page.close();
  if (why !== undefined) console.log(`${await browser.version()} refuses WebGPU: ${why}`);
  return why;
}

/** What a browser itself says of an answer other than 200, and of a broken connection: that is asked for here. */
const RESOURCE = /^Failed to load resource/;

/** A page that keeps what its console and its uncaught errors say. */
export async function openPage(browser, url) {
  const page = await browser.newPage();
  page.setDefaultTimeout(300_000);
  const complaints = [];
  page.on('console', (message) => {
    if (message.type() === 'error' && !RESOURCE.test(message.text())) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  await page.goto(url);
  return { page, complaints };
}

/** Waits until something holds in a page. In Firefox, where a page's policy forbids it, `waitForFunction` cannot make its function. */
export async function until(page, condition, argument) {
  for (let wait = 0; !(await page.evaluate(condition, argument)); wait += 50) {
    if (wait > 300_000) throw new Error(`not within five minutes: ${condition}`);
    await sleep(50);
  }
}

/**
 * Runs `body` in a page of the package, given `Kitfox`, two helpers and `argument`. Errors come back as `CODE: MESSAGE`.
 * `collect(generation)` gives `{ text, ids, summary }`; `fails(promise)` gives the error's code and message.
 */
export async function inPage(page, body, argument) {
  return page.evaluate(
    async (source, argument) => {
      const { Kitfox } = await import('/kitfox/kitfox.js');
      const collect = async (generation) => {
        const [ids, texts] = [[], []];
        for await (const piece of generation) {
          texts.push(piece.text);
          ids.push(...piece.ids);
        }
        return { text: texts.join(''), ids, summary: generation.summary };
      };
      const fails = (promise) => promise.then(() => 'it did not fail', ({ code, message }) => `${code}: ${message}`);
      const work = new Function('Kitfox', 'collect', 'fails', 'argument', `return (${source})(Kitfox, { collect, fails }, argument)`);
      return work(Kitfox, collect, fails, argument).catch((error) => Promise.reject(new Error(`${error.code}: ${error.message}`)));
    },
    String(body),
    argument,
  );
}
