// Rows that are lower than a pixel: each pixel has the colours of all jobs in it.

import { packed } from "./raster.js";

/** With more jobs in a row of pixels, or shorter bars, each job counts with its means; with more jobs, cells of colour are wider. */
const DETAILED_JOBS = 8, DETAILED_PX = 8, WIDE_PX = 2;
/** How visible a pixel with a job in it is at least. */
const FAINTEST = 0.3;
const LEAST = 1e-6;
const HATCH_PX = 6, HATCHED_PX = 2, FAILED_PX = 3;

// What is counted in each cell, one after the other in `changes`.
const COMPUTING = 0, SENDING = 1, WAITING = 2, HELD = 3, QUEUED = 4, COUNTED = 5;

/** How many jobs do something in the cells of one row; adding a span takes the same time however long it is. */
class Lane {
  constructor(density, what) {
    Object.assign(this, { density, what });
  }

  /** Add a span, in cells, with a weight. */
  add(from, to, weight = 1) {
    const { cells, changes } = this.density;
    if (from < 0) from = 0;
    if (to > cells) to = cells;
    if (!(to > from)) return;
    const first = Math.floor(from), last = Math.min(cells - 1, Math.floor(to));
    this.density.include(first, last);
    // A pixel that is covered in part counts in part; the next one gets the rest.
    const begin = first * COUNTED + this.what, end = last * COUNTED + this.what;
    changes[begin] += (first + 1 - from) * weight;
    changes[begin + COUNTED] += (from - first) * weight;
    changes[end] -= (last + 1 - to) * weight;
    changes[end + COUNTED] -= (to - last) * weight;
  }
}

/** Draws all rows of jobs into few rows of pixels. */
export class Density {
  constructor(run, width) {
    Object.assign(this, { run, width, rows: null, version: null });
    // Of each cell against the one before; a cell is one pixel or, with many jobs, some.
    this.changes = new Float64Array((width + 2) * COUNTED);
    this.lanes = [COMPUTING, SENDING, WAITING].map((what) => new Lane(this, what));
    this.queued = new Lane(this, QUEUED);
    this.held = new Lane(this, HELD);
    this.reset();
  }

  reset() {
    this.first = Infinity;
    this.last = -1;
  }

  include(first, last) {
    if (first < this.first) this.first = first;
    if (last > this.last) this.last = last;
  }

  /** Put what jobs do in the order of the rows: reading it is many times as quick. */
  arrange(rows) {
    const { run } = this, version = `${run.version} ${run.to}`;
    if (this.rows === rows && this.version === version) return;
    Object.assign(this, { rows, version });
    this.arrival = Float64Array.from(rows, (job) => run.arrival[job]);
    this.start = Float64Array.from(rows, (job) => run.start[job]);
    this.finish = Float64Array.from(rows, (job) => run.finish[job]);
    // A live run has no totals.
    if (run.computingTotal === undefined) return;
    const share = (total) => Float32Array.from(rows, (job) => total[job] / Math.max(1e-9, run.finish[job] - run.start[job]));
    this.shares = [run.computingTotal, run.sendingTotal, run.waitingTotal].map(share);
  }

  /** Draw rows; `bars` adds what a single job does to its lanes. */
  draw(bars, raster, { rows, first, pitch, view, selected }, rgb) {
    this.arrange(rows);
    const { run, width, arrival, start, finish, shares } = this, each = 1 / pitch;
    this.cell = each > DETAILED_JOBS ? WIDE_PX : 1;
    this.cells = Math.ceil(width / this.cell);
    const { cells } = this, scale = width / this.cell / view.length;
    const known = (run.known - view.from) * scale, from = view.from, to = view.to;
    const plain = paletteOf(rgb, rgb.paper), marked = paletteOf(rgb, rgb.line);
    const highlighted = selected === null ? -1 : rows.indexOf(selected);
    for (let y = 0; y < raster.height; y++) {
      const begin = Math.max(0, Math.floor(first + y * each)), end = Math.min(rows.length, Math.floor(first + (y + 1) * each));
      this.reset();
      for (let row = begin; row < end; row++) {
        if (finish[row] <= from || arrival[row] >= to) continue;
        const left = (start[row] - from) * scale, right = (finish[row] - from) * scale;
        if (arrival[row] < start[row]) this.queued.add((arrival[row] - from) * scale, left);
        if (right <= 0 || left >= cells) continue;
        if (shares && (each > DETAILED_JOBS || right - left < DETAILED_PX)) {
          this.addMeans(left, right, shares[0][row], shares[1][row], shares[2][row]);
        } else {
          this.held.add(left, right);
          bars.addLanes(rows[row], view, scale, null);
        }
      }
      const chosen = highlighted >= begin && highlighted < end;
      if (chosen) raster.pixels.fill(packed(rgb.line), y * width, (y + 1) * width);
      this.paint(raster.pixels, y, known, chosen ? marked : plain);
      for (let row = begin; row < end; row++) if (run.failed(rows[row])) this.markEnd(raster.pixels, y, (finish[row] - from) * (width / view.length), rgb.failed);
    }
  }

  /** Mark where a job failed. */
  markEnd(pixels, y, x, colour) {
    const { width } = this, right = Math.ceil(x);
    if (right > 0 && x < width) pixels.fill(packed(colour), y * width + Math.max(0, right - FAILED_PX), y * width + Math.min(width, right));
  }

  /** Add a job that does the same for all of its time. */
  addMeans(from, to, computing, sending, waiting) {
    const { cells, changes } = this;
    if (from < 0) from = 0;
    if (to > cells) to = cells;
    if (!(to > from)) return;
    const first = Math.floor(from), last = Math.min(cells - 1, Math.floor(to));
    this.include(first, last);
    let at = first * COUNTED, share = first + 1 - from, rest = from - first;
    changes[at] += share * computing;
    changes[at + 1] += share * sending;
    changes[at + 2] += share * waiting;
    changes[at + 3] += share;
    changes[at + 5] += rest * computing;
    changes[at + 6] += rest * sending;
    changes[at + 7] += rest * waiting;
    changes[at + 8] += rest;
    at = last * COUNTED;
    share = last + 1 - to;
    rest = to - last;
    changes[at] -= share * computing;
    changes[at + 1] -= share * sending;
    changes[at + 2] -= share * waiting;
    changes[at + 3] -= share;
    changes[at + 5] -= rest * computing;
    changes[at + 6] -= rest * sending;
    changes[at + 7] -= rest * waiting;
    changes[at + 8] -= rest;
  }

  /** Paint a row of pixels, and forget what was counted there. */
  paint(pixels, y, known, palette) {
    const { changes, first, last, width, cell } = this;
    if (last < first) return;
    const [red, green, blue] = palette.mixed, row = y * width;
    let computing = 0, sending = 0, waiting = 0, held = 0, queued = 0, pixel = 0, visible = false;
    for (let x = first, at = first * COUNTED; x <= last; x++, at += COUNTED) {
      if (changes[at] !== 0 || changes[at + 1] !== 0 || changes[at + 2] !== 0 || changes[at + 3] !== 0 || changes[at + 4] !== 0) {
        computing += changes[at];
        sending += changes[at + 1];
        waiting += changes[at + 2];
        held += changes[at + 3];
        queued += changes[at + 4];
        const all = held + queued, busy = computing + sending + waiting;
        visible = all > LEAST;
        // A pixel is the fainter the fewer jobs are in it, if there is less than one.
        const strength = all > 1 ? 1 : all < FAINTEST ? FAINTEST : all, each = strength / all;
        // Jobs that compute and send at once count once.
        const share = busy > held ? (held / busy) * each : each;
        const computes = computing * share, sends = sending * share, waits = waiting * share, queues = queued * each;
        const idles = strength - queues - computes - sends - waits, rest = 1 - strength;
        pixel = (255 << 24)
          | ((blue[0] * computes + blue[1] * sends + blue[2] * waits + blue[3] * idles + blue[4] * queues + blue[5] * rest) << 16)
          | ((green[0] * computes + green[1] * sends + green[2] * waits + green[3] * idles + green[4] * queues + green[5] * rest) << 8)
          | (red[0] * computes + red[1] * sends + red[2] * waits + red[3] * idles + red[4] * queues + red[5] * rest);
      }
      if (!visible) continue;
      const end = Math.min(width, (x + 1) * cell);
      for (let place = x * cell; place < end; place++) {
        if (x < known) pixels[row + place] = pixel;
        else if ((place + y) % HATCH_PX < HATCHED_PX) pixels[row + place] = held > LEAST ? palette.held : palette.queued;
      }
    }
    changes.fill(0, first * COUNTED, (last + 2) * COUNTED);
  }
}

/** Return the colours that are mixed, by channel and what is counted; and those of predictions, as pixels. */
function paletteOf({ computing, sending, waiting, idle, queued }, background) {
  const mixed = [0, 1, 2].map((part) => Float64Array.from([computing, sending, waiting, idle, queued, background], (colour) => colour[part]));
  return { mixed, held: packed(computing), queued: packed(queued) };
}
