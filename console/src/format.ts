// Formats numbers, sizes and times. The style sheet uses tabular digits, so widths stay stable.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const precise = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });

export function count(value: number): string {
  return whole.format(value);
}

export function short(value: number): string {
  if (Math.abs(value) < 10_000) return whole.format(value);
  const steps: [number, string][] = [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ];
  for (const [size, unit] of steps) if (Math.abs(value) >= size) return precise.format(value / size) + unit;
  return whole.format(value);
}

export function rate(perSecond: number): string {
  if (perSecond === 0) return "0";
  if (perSecond < 0.1) return "< 0.1";
  return perSecond < 10 ? tenths.format(perSecond) : short(Math.round(perSecond));
}

export function bytes(value: number): string {
  if (value < 1024) return `${whole.format(value)} B`;
  let size = value;
  for (const unit of ["KiB", "MiB", "GiB", "TiB", "PiB"]) {
    size /= 1024;
    if (size < 1024 || unit === "PiB") return `${size < 10 ? size.toFixed(1) : whole.format(size)} ${unit}`;
  }
  return "";
}

export function duration(ms: number): string {
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${precise.format(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${precise.format(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

export function time(ms: number | null): string {
  if (ms === null || ms < 0) return "–";
  const at = new Date(ms);
  const digits = (value: number, width = 2) => String(value).padStart(width, "0");
  return (
    `${at.getFullYear()}-${digits(at.getMonth() + 1)}-${digits(at.getDate())} ` +
    `${digits(at.getHours())}:${digits(at.getMinutes())}:${digits(at.getSeconds())}.${digits(at.getMilliseconds(), 3)}`
  );
}

/** Omits the date for today. */
export function clock(ms: number): string {
  const whole = time(ms);
  return whole.slice(0, 10) === time(Date.now()).slice(0, 10) ? whole.slice(11) : whole.slice(0, 19);
}

export function ago(ms: number | null, now = Date.now()): string {
  if (ms === null || ms < 0) return "never";
  const passed = Math.max(0, now - ms);
  if (passed < 2000) return "just now";
  if (passed < 60_000) return `${Math.floor(passed / 1000)} s ago`;
  if (passed < 3_600_000) return `${Math.floor(passed / 60_000)} min ago`;
  if (passed < 86_400_000) return `${Math.floor(passed / 3_600_000)} h ago`;
  return `${Math.floor(passed / 86_400_000)} d ago`;
}

export function plural(number: number, one: string, many = one + "s"): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}
