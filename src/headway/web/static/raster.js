// Spans as pixels: how much of each pixel of a row is covered. Many spans in a pixel become their mean.

/** Coverage of the pixels of one row. */
export class Coverage {
  constructor(width) {
    this.covered = new Float32Array(width);
    this.reset();
  }

  reset() {
    if (this.first <= this.last) this.covered.fill(0, this.first, this.last + 1);
    this.first = Infinity;
    this.last = -1;
  }

  /** Add a span, in pixels, with a weight. */
  add(from, to, weight = 1) {
    const width = this.covered.length;
    if (from < 0) from = 0;
    if (to > width) to = width;
    if (!(to > from)) return;
    const first = Math.floor(from), last = Math.min(width - 1, Math.floor(to));
    if (first < this.first) this.first = first;
    if (last > this.last) this.last = last;
    if (first === last) {
      this.covered[first] += (to - from) * weight;
      return;
    }
    this.covered[first] += (first + 1 - from) * weight;
    for (let pixel = first + 1; pixel < last; pixel++) this.covered[pixel] += weight;
    this.covered[last] += (to - last) * weight;
  }
}

/** An image of bars; it is painted with rows of colours and put on a canvas at once. */
export class Raster {
  constructor() {
    this.image = null;
  }

  begin(context, width, height, background) {
    if (this.image === null || this.image.width !== width || this.image.height !== height) {
      this.image = context.createImageData(Math.max(1, width), Math.max(1, height));
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.width = width;
    this.height = height;
    this.pixels.fill(packed(background));
  }

  /** Copy the pixels from..to of the row at the top of a bar into all of its rows. */
  repeat(top, bottom, from, to) {
    const start = top * this.width;
    for (let row = top + 1; row < bottom; row++) {
      this.pixels.copyWithin(row * this.width + from, start + from, start + to);
    }
  }
}

export const packed = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

/** Return a colour between two, as a pixel. */
export function mixed(one, other, share) {
  const rest = 1 - share;
  return ((255 << 24)
    | ((one[2] * rest + other[2] * share) << 16)
    | ((one[1] * rest + other[1] * share) << 8)
    | (one[0] * rest + other[0] * share)) >>> 0;
}

/** Return a mix of three colours, as a pixel; the first gets what the shares leave. */
export function mixedThree(one, other, share, third, last) {
  const rest = 1 - share - last;
  return ((255 << 24)
    | ((one[2] * rest + other[2] * share + third[2] * last) << 16)
    | ((one[1] * rest + other[1] * share + third[1] * last) << 8)
    | (one[0] * rest + other[0] * share + third[0] * last)) >>> 0;
}
