// Puts in place what the checks need beyond Node: Rust's parts, npm packages, two browsers and a software Vulkan driver.
// On Debian as root it installs what is missing and says so; elsewhere it says exactly what to install.

import { existsSync } from 'node:fs';
import { mkdtemp, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { has, installPackages, run } from './shared.mjs';

const DRIVERS = '/usr/share/vulkan/icd.d';

const lavapipe = async () => (await readdir(DRIVERS).catch(() => [])).find((name) => /^lvp_icd.*\.json$/.test(name));

/** Debian packages, and how to see that each is there. */
const DEBIAN = {
  chromium: () => existsSync('/usr/bin/chromium'),
  'firefox-esr': () => existsSync('/usr/bin/firefox-esr') || existsSync('/usr/bin/firefox'),
  'mesa-vulkan-drivers': async () => hardware() || (await lavapipe()) !== undefined,
  libvulkan1: async () => (await run('/sbin/ldconfig', ['-p'], { quiet: true }).catch(() => '')).includes('libvulkan.so.1'),
  'build-essential': () => has('cc'),
};

/** Whether this machine has a graphics device of its own. */
function hardware() {
  return existsSync('/dev/dri/renderD128') || existsSync('/dev/nvidia0');
}

/** Installs or asks for what is missing. */
export async function setUp() {
  await setUpDebian();
  await setUpRust();
  for (const part of ['fmt', 'clippy']) {
    if (await has('cargo', [part, '--version'])) continue;
    if (!(await has('rustup'))) throw new Error(`install first: cargo ${part}`);
    await run('rustup', ['component', 'add', part === 'fmt' ? 'rustfmt' : 'clippy']);
  }
  await installPackages();
}

async function setUpDebian() {
  const missing = [];
  for (const [name, there] of Object.entries(DEBIAN)) if (!(await there())) missing.push(name);
  if (missing.length === 0) return;
  const root = process.getuid?.() === 0 && (await has('apt-get'));
  if (!root) throw new Error(`install first: ${missing.join(', ')} (Debian's names; as root: apt-get install ${missing.join(' ')})`);
  console.log(`installing ${missing.join(', ')}`);
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  await run('apt-get', ['update', '-q'], { env });
  await run('apt-get', ['install', '-y', '-q', '--no-install-recommends', ...missing], { env });
}

/** Rust and its target for the web: all that a build needs beyond npm's packages. */
export async function setUpRust() {
  if (!(await has('cargo'))) throw new Error('install first: Rust 1.95 or later with cargo, for example through rustup');
  const target = 'wasm32-unknown-unknown';
  const library = await run('rustc', ['--print', 'target-libdir', '--target', target], { quiet: true });
  if (existsSync(library.trim())) return;
  if (!(await has('rustup'))) throw new Error(`install first: Rust's target ${target}`);
  await run('rustup', ['target', 'add', target]);
}

/**
 * The environment of everything that opens a GPU. Without hardware, lavapipe is pinned: tests then run on one known adapter.
 * Mesa wants a private folder for its sockets and says so loudly where there is none.
 */
export async function gpuEnvironment() {
  const env = {};
  if (!process.env.XDG_RUNTIME_DIR) env.XDG_RUNTIME_DIR = await mkdtemp(path.join(tmpdir(), 'kitfox-'));
  if (!process.env.VK_DRIVER_FILES && !hardware()) env.VK_DRIVER_FILES = path.join(DRIVERS, await lavapipe());
  return env;
}
