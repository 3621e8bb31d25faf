// Numbers and units for people. A missing figure is "–".
const kNone = "–";

const whole_number = new Intl.NumberFormat("en-US");  // each toLocaleString() would make its own
const collator = new Intl.Collator("en", { numeric: true });

function by_name(a, b) {
  return is_number(a) && is_number(b) ? a - b : collator.compare(String(a), String(b));
}

function is_number(v) {
  return typeof v === "number" && Number.isFinite(v);
}

/** `significant` digits without an exponent from 0.001 to 10^9. */
function digits(v, significant = 4) {
  if (!is_number(v)) return kNone;
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (size < 1e-3 || size >= 1e9) return v.toExponential(Math.max(0, significant - 1));
  const decimals = Math.max(0, significant - 1 - Math.floor(Math.log10(size)));
  return v.toLocaleString("en-US", { maximumFractionDigits: decimals, minimumFractionDigits: decimals });
}

function micros(us) {
  if (!is_number(us)) return kNone;
  return us >= 1e6 ? `${digits(us / 1e6)} s` : us >= 1e4 ? `${digits(us / 1e3)} ms` : `${digits(us)} µs`;
}

function percent(share, significant = 3) {
  return is_number(share) ? `${digits(100 * share, significant)} %` : kNone;
}

/** A rate in TFLOP/s, in the unit that fits: "309 TFLOP/s", "139 GFLOP/s". */
function flop_rate(tflops) {
  return tflops >= 1 ? `${digits(tflops, 3)} TFLOP/s` : `${digits(1000 * tflops, 3)} GFLOP/s`;
}

/** Distance from the median to the far end of its interval, as a share of the median: that of the console. */
function spread(time) {
  return time && is_number(time.lo_us) && is_number(time.hi_us) ? Math.max(time.hi_us - time.median_us, time.median_us - time.lo_us) / time.median_us : NaN;
}

/** Whether the run's ceilings were measured on a busy machine, so that shares of them may be wrong. */
function ceilings_disturbed(run) {
  return Boolean(run && run.ceilings && run.ceilings.disturbed);
}

/** Whether others took a core during more than half of the samples, so that the time is unreliable. */
function timed_busy(r) {
  return Boolean(is_number(r.us) && r.time && 2 * (r.time.disturbed || 0) > r.time.samples);
}

/** What stands behind a time. */
function time_mark(r) {
  return timed_busy(r) ? "!" : "";
}

/** Whether the interval of a time tells nothing but the order of magnitude. */
function timed_vague(r) {
  return is_number(r.us) && spread(r.time) >= data.limits.vague;
}

/** "± %" of a result's time. */
function spread_text(r) {
  return is_number(r.us) ? digits(100 * spread(r.time), 2) + (timed_vague(r) ? "?" : "") : kNone;
}

/** 8192 becomes "8k": lengths as in the batch grammar. */
function tokens(n) {
  if (!is_number(n)) return kNone;
  if (n >= 1 << 20 && n % (1 << 20) === 0) return `${n >> 20}m`;
  if (n >= 1024 && n % 1024 === 0) return `${n >> 10}k`;
  return whole_number.format(n);
}

/** A number on an axis, with no more digits than needed. */
function tick(v) {
  const size = Math.abs(v);
  if (size >= 1e5) return scaled(v, "").replace(/\.0+(?= )/, "");
  if (v !== 0 && size < 1e-4) return v.toExponential(0);
  return Number(v.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 });
}

function scaled(v, unit) {
  if (!is_number(v)) return kNone;
  const steps = ["", "k", "M", "G", "T", "P"];
  let i = 0;
  while (Math.abs(v) >= 1000 && i < steps.length - 1) {
    v /= 1000;
    ++i;
  }
  return `${digits(v)} ${steps[i]}${unit}`;
}

function plural(n, word) {
  return `${n.toLocaleString("en-US")} ${word}${n === 1 ? "" : "s"}`;
}

/** A text of at most `room` characters: its middle gives way. */
function cut_middle(text, room) {
  const end = Math.floor((room - 1) / 2);
  return text.length <= room ? text : `${text.slice(0, room - 1 - end)}…${text.slice(-end)}`;
}
