// Bars of live jobs: what was, with the messages that are known, and hatched what is predicted.

import { Bars } from "./gantt.js";
import { packed } from "./raster.js";
import { ServerHeat } from "./strips.js";

const HATCH_PX = 6, LINE_PX = 2;

export class LiveBars extends Bars {
  hasBar(job) { return this.run.finish[job] > this.run.start[job]; }

  /** Add what a job does to the lanes; `known` says what is known of the view's time. */
  addLanes(job, view, scale, known) {
    const { run } = this, [computing, sending, waiting] = this.lanes, lanes = { sending, waiting };
    const end = Math.min(run.finish[job], run.known);
    computing.add((run.start[job] - view.from) * scale, (end - view.from) * scale);
    run.eachMessageOf(job, known, (lane, from, to, weight) => {
      lanes[lane].add((from - view.from) * scale, (to - view.from) * scale, weight);
    });
  }

  /** Hatch a bar from the present on. */
  paintFuture(upper, lower, x0, x1, scale, view, rgb) {
    const { pixels, width } = this.raster;
    const first = Math.max(x0, Math.min(x1, Math.ceil((this.run.known - view.from) * scale)));
    if (first >= x1) return;
    const line = packed(rgb.computing), rest = packed(rgb.paper), low = lower - upper < 4;
    for (let y = upper; y < lower; y++) {
      const edge = !low && (y === upper || y === lower - 1);
      for (let x = first; x < x1; x++) {
        const marked = edge || x === x1 - 1 || (x + y) % HATCH_PX < LINE_PX;
        pixels[y * width + x] = marked ? line : rest;
      }
    }
  }
}

/** Draws the number of messages on each node over time, as far as it is known. */
export class NodeHeat extends ServerHeat {
  addMessages(view, scale, rows, known) {
    const { run } = this;
    this.most = Math.max(1, ...known.covers.map(({ stretch }) => stretch.most));
    run.eachMessageOnNodes(known, (node, from, to, weight) => {
      this.rows[Math.floor((node * rows) / run.servers)].add((from - view.from) * scale, (to - view.from) * scale, weight);
    });
  }
}
