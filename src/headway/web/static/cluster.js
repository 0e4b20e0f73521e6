// The cluster at a moment: servers with their GPUs, coloured by job, and the messages on their network.

import { colours, inkOn } from "./colours.js";
import { element, showTip, sized } from "./elements.js";
import { listen } from "./pointer.js";
import { count, counted } from "./text.js";
import { firstThatFits } from "./timeview.js";

const RACK_PX = 18, RACK_GAP_PX = 10, GAP_SHARE = 0.06;
const LOWEST = 1.3, WIDEST = 2.6;
const LABELLED_PX = 74, NAMED_PX = 40;
const STRIPE_PX = 9;
const MAX_TILE_PX = 300, MAX_ZOOM = 40;

/** A map of the servers of a run. */
export class ClusterMap {
  constructor(page, run) {
    Object.assign(this, { page, run });
    this.zoom = 1;
    this.offset = [0, 0];
    this.canvas = element("canvas", { class: "cluster", id: "cluster", tabindex: "0", role: "img" });
    this.tip = element("p", { class: "tip", hidden: true });
    this.root = element("div", { class: "cluster-view" }, this.canvas, this.tip);
    listen(this.canvas, {
      pan: (dx, dy) => {
        this.offset = [this.offset[0] + dx, this.offset[1] + dy];
        page.redraw();
      },
      zoom: (factor, x, y) => this.zoomAt(1 / factor, x, y),
      choose: (x, y) => {
        const server = this.serverAt(x, y);
        const job = server === null ? null : this.jobAt(server, x, y);
        page.choose({ server: server === page.server && job === null ? null : server, ...(job === null ? {} : { job }) });
      },
      hover: (x, y) => this.hover(x, y),
      leave: () => { this.tip.hidden = true; },
      scroll: (dx, dy) => {
        if (this.zoom <= 1) return false;
        this.offset = [this.offset[0] - dx, this.offset[1] - dy];
        page.redraw();
        return true;
      },
    });
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns }[event.key];
      if (step === undefined || run.servers === 0) return;
      const server = page.server === null ? 0 : Math.max(0, Math.min(run.servers - 1, page.server + step));
      page.choose({ server });
      this.reveal(server);
      event.preventDefault();
      event.stopPropagation();
    });
  }

  zoomAt(factor, x, y) {
    const zoom = Math.max(1, Math.min(MAX_ZOOM, this.zoom * factor));
    const scale = zoom / this.zoom;
    this.offset = zoom === 1 ? [0, 0] : [x - (x - this.offset[0]) * scale, y - (y - this.offset[1]) * scale];
    this.zoom = zoom;
    this.page.redraw();
  }

  /** Move a zoomed map so that all of a server is on show. */
  reveal(server) {
    const box = this.box(server), { clientWidth, clientHeight } = this.canvas;
    const into = (from, size, room) => (from < 0 ? -from : Math.min(0, room - from - size));
    this.offset = [this.offset[0] + into(box.x, box.width, clientWidth), this.offset[1] + into(box.y, box.height, clientHeight)];
    this.page.redraw();
  }

  /** Choose the first server whose name contains a text, and show it large enough to read. */
  find(text) {
    const wanted = text.trim().toLowerCase(), names = Array.from({ length: this.run.servers }, (_, server) => this.run.serverName(server).toLowerCase());
    const exact = names.findIndex((name) => name === wanted || name.endsWith(` ${wanted}`));
    const server = exact >= 0 ? exact : names.findIndex((name) => name.includes(wanted));
    if (wanted === "" || server < 0) return false;
    const { x, y, width } = this.box(server);
    if (width < LABELLED_PX) this.zoomAt((1.5 * LABELLED_PX) / width, x, y);
    this.page.choose({ server });
    this.reveal(server);
    return true;
  }

  /** Place the servers, rack by rack, as large as the canvas allows. */
  layout(width, height) {
    const racks = new Map();
    for (let server = 0; server < this.run.servers; server++) {
      const rack = this.run.serverRack[server];
      if (!racks.has(rack)) racks.set(rack, []);
      racks.get(rack).push(server);
    }
    const most = Math.max(1, ...[...racks.values()].map((servers) => servers.length));
    let best = null;
    // A live cluster may have no servers yet, and thus no racks.
    const boxes = Math.max(1, racks.size);
    for (let across = 1; across <= boxes; across++) {
      const box = { width: width / across, height: height / Math.ceil(boxes / across) };
      const title = racks.size > 1 ? Math.min(RACK_PX, box.height / 4) : 0;
      const found = tileOf(most, box.width - (racks.size > 1 ? RACK_GAP_PX : 0), box.height - title - (racks.size > 1 ? RACK_GAP_PX : 0));
      if (best === null || found.size > best.size + 1e-9) best = { ...found, across, box, title };
    }
    const { columns, wide, high, across, box, title } = best;
    Object.assign(this, { columns, tile: wide, high, title });
    this.places = new Array(this.run.servers);
    this.rackTitles = [];
    // Racks stand as close as their servers need.
    const rackWidth = racks.size > 1 ? Math.min(box.width, columns * wide + RACK_GAP_PX) : columns * wide;
    const rackHeight = racks.size > 1 ? Math.min(box.height, Math.ceil(most / columns) * high + title + RACK_GAP_PX) : Math.ceil(most / columns) * high;
    [...racks].forEach(([rack, servers], number) => {
      const left = (number % across) * rackWidth, top = Math.floor(number / across) * rackHeight;
      if (title) this.rackTitles.push({ rack, left, top });
      servers.forEach((server, index) => {
        this.places[server] = { x: left + (index % columns) * wide, y: top + title + Math.floor(index / columns) * high };
      });
    });
    this.contentWidth = Math.min(across, racks.size) * rackWidth;
    this.contentHeight = Math.ceil(racks.size / across) * rackHeight;
    this.laidOut = `${width}x${height} ${this.run.layout}`;
  }

  box(server) {
    const { x, y } = this.places[server], { zoom, tile } = this;
    const gap = this.high * zoom * GAP_SHARE * 0.5;
    return {
      x: this.left + this.offset[0] + x * zoom + gap, y: this.offset[1] + y * zoom + gap,
      width: tile * zoom - 2 * gap, height: this.high * zoom - 2 * gap,
    };
  }

  serverAt(x, y) {
    for (let server = 0; server < this.run.servers; server++) {
      const box = this.box(server);
      if (x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height) return server;
    }
    return null;
  }

  jobAt(server, x, y) {
    const gpu = this.gpuAt(server, x, y);
    if (gpu === null) return null;
    const jobs = this.page.now.gpuJobs.get(gpu);
    return jobs ? jobs[0] : null;
  }

  gpuAt(server, x, y) {
    const area = this.gpuArea(this.box(server));
    const gpus = this.run.serverGpus[server], grid = gridOf(gpus, area);
    const column = Math.floor((x - area.x) / (area.width / grid.columns)), row = Math.floor((y - area.y) / (area.height / grid.rows));
    const index = row * grid.columns + column;
    if (column < 0 || row < 0 || column >= grid.columns || row >= grid.rows || index >= gpus) return null;
    return this.run.firstOfServer[server] + index;
  }

  gpuArea(box) {
    const title = box.width >= LABELLED_PX ? 15 : 0;
    const inner = box.width >= LABELLED_PX ? 4 : Math.min(2, box.width * 0.04);
    const height = box.height - title - 2 * inner;
    return { x: box.x + inner, y: box.y + title + inner, width: box.width - 2 * inner, height: height * 0.55 };
  }

  draw(now) {
    const { context, width, height } = sized(this.canvas), theme = colours();
    if (this.laidOut !== `${width}x${height} ${this.run.layout}`) this.layout(width, height);
    this.left = Math.max(0, (width - this.contentWidth) / 2) * (this.zoom === 1 ? 1 : 0) + (this.zoom === 1 ? 0 : this.leftAtOne ?? 0);
    if (this.zoom === 1) this.leftAtOne = this.left;
    this.clampOffset(width, height);
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, width, height);
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = theme.soft;
    for (const { rack, left, top } of this.rackTitles) {
      const room = this.title * this.zoom;
      context.font = `${Math.max(7, Math.min(11, room - 2))}px ${theme.font}`;
      context.fillText(`rack ${this.run.racks[rack]}`, this.left + this.offset[0] + left * this.zoom + 2, this.offset[1] + top * this.zoom + room / 2);
    }
    for (let server = 0; server < this.run.servers; server++) {
      const box = this.box(server);
      if (box.x > width || box.y > height || box.x + box.width < 0 || box.y + box.height < 0) continue;
      this.drawServer(context, server, box, now, theme);
    }
    const { server, gpu } = this.run.nouns;
    if (this.run.servers === 0) {
      context.fillStyle = theme.soft;
      context.font = `13px ${theme.font}`;
      context.textAlign = "center";
      context.fillText(`There are no ${server}s yet.`, width / 2, height / 2);
    }
    this.canvas.setAttribute("aria-label", `Map of ${counted(this.run.servers, server)}: `
      + `${count(now.gpuJobs.size)} of ${count(this.run.allGpus)} ${gpu}s hold a job, `
      + `${counted(now.messages.filter((message) => !message.waits).length, "message")} in flight.`);
  }

  clampOffset(width, height) {
    const limit = (offset, content, room) => (content <= room ? Math.min(Math.max(0, offset), room - content) : Math.min(0, Math.max(room - content, offset)));
    if (this.zoom === 1) this.offset = [0, 0];
    else {
      this.offset[0] = limit(this.offset[0] + this.left, this.contentWidth * this.zoom, width) - this.left;
      this.offset[1] = limit(this.offset[1], this.contentHeight * this.zoom, height);
    }
  }

  drawServer(context, server, box, now, theme) {
    const { run, page } = this, detailed = box.width >= LABELLED_PX;
    const here = now.onServer.get(server) ?? { inFlight: [], waiting: [] };
    context.fillStyle = theme.panel;
    context.fillRect(box.x, box.y, box.width, box.height);
    if (server === page.server) {
      context.strokeStyle = theme.accent;
      context.lineWidth = 2;
      context.strokeRect(box.x, box.y, box.width, box.height);
    }
    if (detailed) {
      context.font = `11px ${theme.font}`;
      context.textAlign = "left";
      context.fillStyle = theme.soft;
      const name = run.serverName(server), state = run.serverState(server), room = box.width - 14 - context.measureText(name).width;
      const texts = [" in flight", ""].map((flight) => [
        state === "up" ? "" : state,
        here.inFlight.length ? `${here.inFlight.length}${flight}` : "",
        here.waiting.length ? `${here.waiting.length} wait${here.waiting.length === 1 ? "s" : ""}` : "",
      ].filter((text) => text).join(", "));
      const right = texts.find((text) => context.measureText(text).width <= room) ?? texts.at(-1);
      const left = [name, run.serverShort?.(server) ?? name], free = box.width - 14 - context.measureText(right).width;
      context.fillText(firstThatFits(context, left, Math.max(20, free)), box.x + 5, box.y + 9);
      context.textAlign = "right";
      context.fillText(right, box.x + box.width - 5, box.y + 9);
    }
    const area = this.gpuArea(box);
    this.drawGpus(context, server, area, now, theme);
    const top = area.y + area.height + (detailed ? 4 : 1), bottom = box.y + box.height - (detailed ? 4 : 1);
    this.drawNetwork(context, { x: area.x, y: top, width: area.width, height: bottom - top }, here, theme);
    this.drawState(context, run.serverState(server), box, theme);
  }

  /** Mark a server that takes no jobs: stripes while it drains, a cross once it is lost. */
  drawState(context, state, box, theme) {
    if (state === "up") return;
    context.save();
    context.beginPath();
    context.rect(box.x, box.y, box.width, box.height);
    context.clip();
    context.strokeStyle = theme.soft;
    context.lineWidth = 1;
    context.globalAlpha = 0.55;
    context.beginPath();
    if (state === "lost") {
      context.moveTo(box.x, box.y);
      context.lineTo(box.x + box.width, box.y + box.height);
      context.moveTo(box.x + box.width, box.y);
      context.lineTo(box.x, box.y + box.height);
    } else {
      for (let x = -box.height; x < box.width; x += STRIPE_PX) {
        context.moveTo(box.x + x, box.y + box.height);
        context.lineTo(box.x + x + box.height, box.y);
      }
    }
    context.stroke();
    context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
    context.restore();
  }

  drawGpus(context, server, area, now, theme) {
    const { run, page } = this, gpus = run.serverGpus[server], grid = gridOf(gpus, area);
    const cell = { width: area.width / grid.columns, height: area.height / grid.rows };
    const gap = cell.width > 8 ? 1.5 : cell.width > 4 ? 0.5 : 0;
    for (let index = 0; index < gpus; index++) {
      const x = area.x + (index % grid.columns) * cell.width, y = area.y + Math.floor(index / grid.columns) * cell.height;
      const jobs = now.gpuJobs.get(run.firstOfServer[server] + index);
      const width = cell.width - gap, height = cell.height - gap;
      if (jobs === undefined) {
        context.strokeStyle = theme.line;
        context.lineWidth = 1;
        if (gap) context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
        continue;
      }
      jobs.forEach((job, at) => {
        const own = height / jobs.length, upper = y + at * own;
        const colour = run.colour[job];
        const dimmed = now.exact && !now.computing.has(job);
        context.globalAlpha = page.job !== null && page.job !== job ? (dimmed ? 0.18 : 0.4) : dimmed ? 0.45 : 1;
        context.fillStyle = colour;
        context.fillRect(x, upper, width, own - (at + 1 < jobs.length ? 0.5 : 0));
        context.globalAlpha = 1;
        if (cell.width >= 20 && own >= 11) {
          context.font = `${Math.min(12, own - 1)}px ${theme.font}`;
          context.textAlign = "center";
          context.fillStyle = dimmed || (page.job !== null && page.job !== job) ? theme.ink : inkOn(colour);
          const text = firstThatFits(context, [run.label(job), run.ids[job]], width - 2);
          context.fillText(text, x + width / 2, upper + own / 2 + 0.5);
        }
        if (page.job === job) {
          context.strokeStyle = theme.accent;
          context.lineWidth = 2;
          if (cell.width >= 8) context.strokeRect(x + 1, upper + 1, width - 2, own - 2);
        }
      });
    }
  }

  drawNetwork(context, area, here, theme) {
    if (area.height < 1) return;
    const all = [...here.inFlight, ...here.waiting], wanted = area.height / Math.max(1, all.length);
    const lane = area.width >= LABELLED_PX - 8 ? Math.min(13, Math.max(9, wanted)) : 4;
    const most = Math.max(1, Math.floor(area.height / Math.min(lane, area.height)));
    context.fillStyle = theme.faint;
    if (!all.length) context.fillRect(area.x, area.y + area.height - 1, area.width, 1);
    const height = Math.min(lane, area.height / Math.max(1, Math.min(all.length, most)));
    // The title counts those for which there is no room.
    all.slice(0, most).forEach((message, index) => {
      const y = area.y + index * height, colour = this.run.colour[message.job];
      const thick = Math.max(1, height - (height > 4 ? 2 : 0.5));
      if (message.waits) {
        context.strokeStyle = colour;
        context.setLineDash([3, 2]);
        context.lineWidth = 1;
        context.strokeRect(area.x + 0.5, y + 0.5, area.width - 1, thick - 1);
        context.setLineDash([]);
      } else {
        context.globalAlpha = 0.25;
        context.fillStyle = colour;
        context.fillRect(area.x, y, area.width, thick);
        context.globalAlpha = 1;
        context.fillRect(area.x, y, area.width * (message.share ?? 0), thick);
      }
      if (area.width >= NAMED_PX && height >= 9) {
        context.font = `${Math.min(10, height - 1)}px ${theme.font}`;
        context.textAlign = "left";
        context.fillStyle = theme.ink;
        const id = this.run.ids[message.job], label = this.run.label(message.job);
        const labels = message.waits ? [`${label} waits`, `${id} waits`, id] : [label, id];
        const text = firstThatFits(context, labels, area.width - 8);
        const size = context.measureText(text).width;
        context.fillStyle = theme.panel;
        context.globalAlpha = 0.85;
        context.fillRect(area.x + 2, y + 1, size + 4, thick - 2);
        context.globalAlpha = 1;
        context.fillStyle = theme.ink;
        context.fillText(text, area.x + 4, y + thick / 2 + 0.5);
      }
    });
  }

  hover(x, y) {
    const server = this.places && this.page.now ? this.serverAt(x, y) : null;
    showTip(this.tip, server === null ? null : this.tipText(server, x, y), x, y);
  }

  tipText(server, x, y) {
    const { run, page } = this, { now } = page;
    const gpu = this.gpuAt(server, x, y), here = now.onServer.get(server) ?? { inFlight: [], waiting: [] };
    const jobs = gpu === null ? [] : now.gpuJobs.get(gpu) ?? [];
    const names = jobs.map((job) => run.tipOf(job));
    const what = gpu === null
      ? `${counted(here.inFlight.length, "message")} in flight, ${count(here.waiting.length)} waiting`
      : `${run.nouns.gpu} ${run.gpuName(gpu)}: ${names.join(", ") || "free"}`;
    const state = run.serverState(server);
    return [run.serverName(server), state === "up" ? "" : state, what].filter((part) => part).join(" · ");
  }
}

/** Return the largest tiles that all fit into an area: {columns, wide, high, size}. */
function tileOf(tiles, width, height) {
  let best = null;
  for (let columns = 1; columns <= tiles; columns++) {
    const rows = Math.ceil(tiles / columns);
    const high = Math.max(2, Math.min(MAX_TILE_PX / LOWEST, height / rows, width / columns / LOWEST));
    const wide = Math.max(2, Math.min(MAX_TILE_PX, width / columns, high * WIDEST));
    const size = Math.min(high * LOWEST, wide / 1.6);
    if (best === null || size > best.size + 1e-9) best = { size, high, wide, columns };
  }
  return best;
}

/** Return how to arrange GPUs in an area: {columns, rows}. */
function gridOf(gpus, { width, height }) {
  let best = { columns: gpus, rows: 1, size: 0 };
  for (let rows = 1; rows <= gpus; rows++) {
    const columns = Math.ceil(gpus / rows), size = Math.min(width / columns, height / rows);
    if (size > best.size * 1.05) best = { columns, rows, size };
  }
  return best;
}
