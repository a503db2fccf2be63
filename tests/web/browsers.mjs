// The two browsers, headless. Each has WebGPU in software: Chromium on SwiftShader (judged by Tint), Firefox on lavapipe (by naga).

import { existsSync } from 'node:fs';
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

/** Firefox ESR. */
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

/** A page that keeps what its console and its uncaught errors say. */
export async function openPage(browser, url, { quiet = [] } = {}) {
  const page = await browser.newPage();
  const complaints = [];
  const complain = (text) => quiet.some((pattern) => pattern.test(text)) || complaints.push(text);
  page.on('console', (message) => message.type() === 'error' && complain(message.text()));
  page.on('pageerror', (error) => complain(String(error)));
  await page.goto(url);
  return { page, complaints };
}
