// What the tools share: where things are, and running commands with their output shown.

import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('..', import.meta.url));

/** Runs a command in the repository; rejects, naming it, unless it exits with 0. With `quiet`, its output is given back instead. */
export function run(command, args, { cwd = root, env = {}, quiet = false } = {}) {
  return new Promise((resolve, reject) => {
    const shown = [command, ...args].join(' ');
    if (!quiet) console.log(`$ ${shown}`);
    const stdio = ['ignore', quiet ? 'pipe' : 'inherit', quiet ? 'pipe' : 'inherit'];
    const child = spawn(command, args, { cwd, env: { ...process.env, ...env }, stdio });
    let output = '';
    child.stdout?.on('data', (text) => (output += text));
    child.stderr?.on('data', (text) => (output += text));
    child.on('error', (error) => reject(new Error(`${shown}: ${error.message}`)));
    child.on('close', (code, signal) => {
      if (code === 0) resolve(output);
      else reject(new Error(`${shown}: ${signal === null ? `exit code ${code}` : `ended by ${signal}`}${quiet ? `\n${output}` : ''}`));
    });
  });
}

/** Whether a command can be started. */
export async function has(command, args = ['--version']) {
  return run(command, args, { quiet: true }).then(
    () => true,
    () => false,
  );
}

/** Runs a program of an installed npm package, without npx in between. */
export function bin(name, args, options) {
  return run(process.execPath, [fileURLToPath(new URL(`../node_modules/.bin/${name}`, import.meta.url)), ...args], options);
}

/** A call that asks for what cannot be: exit code 2, as kitfox's own. */
export class Usage extends Error {}

/** Runs the body of a tool: a failure is one line and exit code 1 (bad usage: 2), without a stack. */
export async function main(body) {
  try {
    await body();
  } catch (error) {
    console.error(`error: ${error.message}`);
    process.exitCode = error instanceof Usage ? 2 : 1;
  }
}

/** Installs the npm packages of the lock file, unless they are there. */
export async function installPackages() {
  const { devDependencies } = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));
  const wanted = [...Object.keys(devDependencies), 'kitfox'];
  if (wanted.every((name) => existsSync(`${root}node_modules/${name}`))) return;
  await run('npm', ['ci', '--no-audit', '--no-fund']);
}
