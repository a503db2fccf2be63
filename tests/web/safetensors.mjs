// Reads the tensors of a safetensors file: in the page and in Node.

const KINDS = { F32: Float32Array, I32: Int32Array };

/** Name → { shape, data }. */
export function parse(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  delete header.__metadata__;
  const read = ({ dtype, shape, data_offsets: [start, end] }) => {
    return { shape, data: new KINDS[dtype](buffer.slice(8 + length + start, 8 + length + end)) };
  };
  return Object.fromEntries(Object.entries(header).map(([name, tensor]) => [name, read(tensor)]));
}

/** Fetches a file and reads it. */
export async function fetchTensors(url) {
  return parse(await (await fetch(url)).arrayBuffer());
}

/** |a − b| of each pair, smallest first; a NaN counts as infinite. */
export function errors(got, want) {
  if (got.length !== want.length) throw new Error(`${got.length} numbers, expected ${want.length}`);
  return got.map((value, ix) => (Number.isNaN(value) ? Infinity : Math.abs(value - want[ix]))).sort();
}
