// Numbers, times and sentences as people read them.

// Formatters take long to make.
const FORMATS = new Map();

function format(least, most) {
  const key = `${least} ${most}`;
  if (!FORMATS.has(key)) FORMATS.set(key, new Intl.NumberFormat("en", { minimumFractionDigits: least, maximumFractionDigits: most }));
  return FORMATS.get(key);
}

export const count = (value) => format(0, 0).format(Math.round(value));

/** Return a level of something that is counted: whole, or a mean. */
export const level = (value) => (Number.isNaN(value) ? "unknown" : format(0, value < 10 ? 2 : 1).format(value));

/** Return "1 job", "2 jobs". */
export const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** Return seconds with as many digits as a step of that size needs. */
export function seconds(value, step = 0.001) {
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  return format(digits, digits).format(value);
}

/** Return a duration in the unit that suits it. */
export function duration(value) {
  const size = Math.abs(value);
  if (size < 1e-9) return "0 s";
  if (size < 1e-3) return `${Number((value * 1e6).toPrecision(3))} µs`;
  if (size < 1) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (size < 100) return `${value.toFixed(2)} s`;
  if (size < 3600) return `${count(value)} s`;
  const minutes = Math.round(size / 60);
  const text = minutes < 60 * 48
    ? `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`
    : `${(size / 86400).toFixed(1)} days`;
  return value < 0 ? `−${text}` : text;
}

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}%`;

/** Return "a", "a and b", "a, b and c", with at most `most` named. */
export function list(names, most = 4) {
  if (names.length > most) return `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
  if (names.length < 2) return names.join("");
  return `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

/** Return ascending numbers with runs joined: "0–3, 7". */
export function ranges(numbers, most = 6) {
  const parts = [];
  for (let index = 0; index < numbers.length; index++) {
    const first = numbers[index];
    while (index + 1 < numbers.length && numbers[index + 1] === numbers[index] + 1) index++;
    parts.push(first === numbers[index] ? `${first}` : `${first}–${numbers[index]}`);
  }
  return parts.length > most ? `${parts.slice(0, most).join(", ")}, …` : parts.join(", ");
}

/** Return "in 5 min 3 s" or "now". */
export const inWords = (value) => (value < 1 ? "now" : `in ${span(value)}`);

/** Return "5 min 3 s ago" or "just now". */
export const ago = (value) => (value < 1 ? "just now" : `${span(value)} ago`);

/** Return a duration with fractions of a second if it is short, in minutes and hours if it is long. */
export const briefly = (value) => (value < 60 ? duration(value) : span(value));

/** Return a duration in whole seconds, minutes and hours, of which the two largest. */
export function span(value) {
  const rounded = Math.round(value), minutes = Math.floor(rounded / 60), hours = Math.floor(minutes / 60);
  if (rounded < 60) return `${rounded} s`;
  if (hours < 1) return rounded % 60 ? `${minutes} min ${rounded % 60} s` : `${minutes} min`;
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${(value / 86400).toFixed(1)} days`;
}

export const megabytes = (bytes) => `${format(0, 3).format(Number((bytes / 2 ** 20).toPrecision(4)))} MB`;

/** Return a text as a sentence: with a capital letter and a full stop. */
export function sentence(text) {
  const trimmed = text.trim();
  return trimmed === "" ? "" : `${trimmed[0].toUpperCase()}${trimmed.slice(1)}${/[.!?]$/.test(trimmed) ? "" : "."}`;
}
