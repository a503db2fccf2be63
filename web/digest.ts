/** SHA-256 in hexadecimal: the browser's, or where the page is not secure and the browser has none, the plain computation (FIPS 180-4). */

/** The SHA-256 of some bytes. */
export async function sha256(bytes: Uint8Array): Promise<string> {
  const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined;
  const digest = subtle === undefined ? plainSha256(bytes) : new Uint8Array(await subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** The first 32 bits of the fraction of the n-th roots of the first primes. */
function fractions(count: number, root: (prime: number) => number): Uint32Array {
  const out = new Uint32Array(count);
  for (let [prime, n] = [2, 0]; n < count; prime += 1) {
    let divisor = 2;
    while (divisor * divisor <= prime && prime % divisor !== 0) divisor += 1;
    if (divisor * divisor > prime) out[n++] = (root(prime) % 1) * 2 ** 32;
  }
  return out;
}

const ROUND = fractions(64, Math.cbrt);
const BEGIN = fractions(8, Math.sqrt);

/** Without the browser's help. */
export function plainSha256(bytes: Uint8Array): Uint8Array {
  const whole = bytes.length & ~63;
  const tail = new Uint8Array(bytes.length - whole < 56 ? 64 : 128);
  tail.set(bytes.subarray(whole));
  tail[bytes.length - whole] = 0x80;
  const length = new DataView(tail.buffer, tail.length - 8);
  length.setUint32(0, Math.floor(bytes.length / 2 ** 29));
  length.setUint32(4, bytes.length << 3);
  const state = BEGIN.slice();
  blocks(state, bytes.subarray(0, whole));
  blocks(state, tail);
  const out = new DataView(new ArrayBuffer(32));
  state.forEach((word, ix) => out.setUint32(4 * ix, word));
  return new Uint8Array(out.buffer);
}

function blocks(state: Uint32Array, bytes: Uint8Array): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const w = new Int32Array(64);
  const turn = (x: number, n: number): number => (x >>> n) | (x << (32 - n));
  for (let at = 0; at < bytes.length; at += 64) {
    for (let t = 0; t < 64; t += 1) {
      if (t < 16) {
        w[t] = view.getInt32(at + 4 * t);
        continue;
      }
      const [old, late] = [w[t - 15] ?? 0, w[t - 2] ?? 0];
      const s0 = turn(old, 7) ^ turn(old, 18) ^ (old >>> 3);
      const s1 = turn(late, 17) ^ turn(late, 19) ^ (late >>> 10);
      w[t] = (w[t - 16] ?? 0) + s0 + (w[t - 7] ?? 0) + s1;
    }
    let [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = state;
    for (let t = 0; t < 64; t += 1) {
      const t1 = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + (ROUND[t] ?? 0) + (w[t] ?? 0)) | 0;
      const t2 = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, ix) => (state[ix] = (state[ix] ?? 0) + word));
  }
}
