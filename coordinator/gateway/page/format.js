// Numbers as people read them.

function scaled(value, step, units) {
  let i = 0;
  while (Math.abs(value) >= step && i + 1 < units.length) {
    value /= step;
    i++;
  }
  const digits = i === 0 ? 0 : Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[i]}`;
}

export const bytes = (value) => scaled(value || 0, 1000, ["B", "kB", "MB", "GB", "TB"]);
export const rate = (value) => scaled(value || 0, 1000, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]);
export const count = (value) => Math.round(value || 0).toLocaleString("en").replaceAll(",", " ");

// Three digits that count.
export function three(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : 2);
}

export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 120) return `${(value / 60).toFixed(1)} min`;
  if (size >= 1) return `${three(value)} s`;
  if (size >= 1e-3) return `${three(value * 1e3)} ms`;
  return value === 0 ? "0" : `${three(value * 1e6)} µs`;
}

export function percent(share, signed = false) {
  if (!Number.isFinite(share)) return "–";
  const value = share * 100;
  return `${signed && value > 0 ? "+" : ""}${value.toFixed(Math.abs(value) < 10 ? 1 : 0)} %`;
}

export function layers(first, last) {
  return first === last ? `${first}` : `${first}–${last}`;
}

export function perSecond(value) {
  return value > 0 && value < 10 ? value.toFixed(1) : count(value);
}
