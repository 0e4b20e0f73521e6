// Blocks of columns, as headway.web.columns writes them.

/** Return the header and the columns of a block: {values, columns}. */
export async function unpack(block) {
  const stream = new Blob([block]).stream().pipeThrough(new DecompressionStream("gzip"));
  const body = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(body.buffer).getUint32(0, true);
  const values = JSON.parse(new TextDecoder().decode(body.subarray(4, 4 + length)));
  const columns = {};
  let first = 4 + length;
  for (const [name, count, planes] of values.columns) {
    columns[name] = integers(body.subarray(first, first + count * planes), count, planes);
    first += count * planes;
  }
  return { values, columns };
}

function integers(bytes, count, planes) {
  const column = new Float64Array(count);
  for (let plane = planes - 1; plane >= 0; plane--) {
    const first = plane * count;
    for (let row = 0; row < count; row++) column[row] = column[row] * 256 + bytes[first + row];
  }
  for (let row = 0; row < count; row++) {
    const stored = column[row];
    column[row] = stored % 2 ? -(stored + 1) / 2 : stored / 2;
  }
  return column;
}

/** Return the values whose steps a column holds. */
export function summed(steps) {
  const values = new Float64Array(steps.length);
  let value = 0;
  for (let row = 0; row < steps.length; row++) values[row] = value += steps[row];
  return values;
}

/** Return where the rows of each owner begin, and where those of the last one end; rows are ordered by owner. */
export function firstRows(owner, owners) {
  const first = new Int32Array(owners + 1);
  for (const one of owner) first[one + 1] += 1;
  for (let one = 0; one < owners; one++) first[one + 1] += first[one];
  return first;
}

/** Return where each of some lists begins, and where the last one ends, from their sizes. */
export function offsets(sizes) {
  const first = new Int32Array(sizes.length + 1);
  for (let row = 0; row < sizes.length; row++) first[row + 1] = first[row] + sizes[row];
  return first;
}
