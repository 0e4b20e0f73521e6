// Colours: those of the theme, from the style sheet, and those of jobs.

// Distinct under the common kinds of colour blindness; jobs are labelled too.
const JOBS = [
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9",
  "#d55e00", "#b8ac1a", "#882255", "#44aa99", "#7a6fc4",
];
export const LINES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
export const DASHES = [[], [6, 3], [2, 2], [8, 2, 2, 2], [10, 4], [4, 2]];

const NAMES = [
  "ink", "soft", "faint", "line", "paper", "panel", "accent", "moment",
  "computing", "sending", "waiting", "idle", "queued", "heat", "failed",
];
let theme = null;

/** Return the theme's colours as [red, green, blue] in `rgb`, and as text by their names. */
export function colours() {
  if (theme === null) {
    const style = getComputedStyle(document.documentElement);
    theme = { rgb: {} };
    for (const name of NAMES) {
      theme[name] = style.getPropertyValue(`--${name}`).trim();
      theme.rgb[name] = rgb(theme[name]);
    }
    theme.font = style.getPropertyValue("--font").trim();
  }
  return theme;
}

/** Forget the theme's colours: they are read again when they are needed. */
export function forgetColours() {
  theme = null;
}

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** Return black or white, whichever reads better on a colour. */
export function inkOn(hex) {
  const [red, green, blue] = rgb(hex).map((part) => (part / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.22 ? "#000000" : "#ffffff";
}

/** Return the colour of jobs that is used least, from the one after `last` on; `used` counts by colour. */
export function leastUsedColour(used, last) {
  const first = JOBS.indexOf(last) + 1;
  let best = null;
  for (let step = 0; step < JOBS.length; step++) {
    const colour = JOBS[(first + step) % JOBS.length];
    if (best === null || (used.get(colour) ?? 0) < (used.get(best) ?? 0)) best = colour;
  }
  return best;
}

/** Return a colour for each job: one that the fewest of the jobs that run at its start have. */
export function jobColours(start, finish) {
  const order = [...start.keys()].sort((one, other) => start[one] - start[other] || one - other);
  const ends = JOBS.map(() => []), chosen = new Array(start.length);
  let next = 0;
  for (const job of order) {
    let best = null;
    for (let step = 0; step < JOBS.length; step++) {
      const colour = (next + step) % JOBS.length;
      ends[colour] = ends[colour].filter((end) => end > start[job]);
      if (best === null || ends[colour].length < ends[best].length) best = colour;
    }
    ends[best].push(finish[job]);
    chosen[job] = JOBS[best];
    next = best + 1;
  }
  return chosen;
}
