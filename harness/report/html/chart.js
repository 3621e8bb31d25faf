// Common parts of all plots: axes with units, tooltips that name the case, labels on lines, the keyboard.
Object.assign(Chart.defaults, { animation: false, responsive: true, maintainAspectRatio: false, normalized: true });
Chart.defaults.font.family = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

const narrow = window.matchMedia("(max-width: 640px)");

/** 1, 2 and 5 of every decade, or only some decades if the range is long. */
function decade_ticks(min, max) {
  const decades = Math.log10(max / min);
  const steps = decades <= 1.2 ? [1, 2, 3, 5, 7] : decades <= 3 ? [1, 2, 5] : [1];
  const every = steps.length > 1 ? 1 : Math.ceil(decades / (narrow.matches ? 5 : 9));
  const ticks = [];
  for (let d = Math.floor(Math.log10(min)); d <= Math.ceil(Math.log10(max)); ++d) {
    if (d % every !== 0) continue;
    for (const s of steps) {
      const v = Number(`${s}e${d}`);
      if (v >= min && v <= max) ticks.push({ value: v });
    }
  }
  return ticks;
}

function power_ticks(min, max) {
  const lowest = Math.ceil(Math.log2(min)), highest = Math.floor(Math.log2(max));
  const every = Math.max(1, Math.ceil((highest - lowest + 1) / (narrow.matches ? 6 : 10)));
  const ticks = [];
  for (let p = lowest; p <= highest; ++p) {
    if ((p - lowest) % every === 0) ticks.push({ value: 2 ** p });
  }
  return ticks;
}

function linear_ticks(min, max) {
  const raw = (max - min) / (narrow.matches ? 4 : 7);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((s) => raw / power <= s * (1 + 1e-9));
  const ticks = [];
  for (let i = Math.ceil(min / step - 1e-9); i * step <= max * (1 + 1e-12); ++i) ticks.push({ value: Number((i * step).toPrecision(12)) });
  return ticks;
}

/** Ends of a logarithmic axis with space around the values. */
function log_range(values, room = 1.25) {
  const good = values.filter((v) => v > 0 && Number.isFinite(v));
  if (good.length === 0) return [1, 10];
  return [good.reduce((a, b) => Math.min(a, b)) / room, good.reduce((a, b) => Math.max(a, b)) * room];
}

/** options: title, min, max, log, powers (ticks at powers of two), ticks (their values), show (value -> text). */
function axis(options) {
  const show = options.show || tick;
  const a = {
    type: options.log ? "logarithmic" : "linear",
    min: options.min,
    max: options.max,
    title: { display: true, text: options.title, color: theme.color("muted") },
    grid: { color: theme.color("grid"), borderColor: theme.color("line"), drawTicks: false },
    ticks: { color: theme.color("muted"), padding: 6, maxRotation: options.ticks ? 60 : 0, autoSkip: false, callback: (v) => show(v) },
  };
  a.afterBuildTicks = (scale) => {
    const ticks = options.ticks ? options.ticks.map((value) => ({ value })) : (options.powers ? power_ticks : options.log ? decade_ticks : linear_ticks)(scale.min, scale.max);
    scale.ticks = options.ticks || ticks.length >= 2 ? ticks : linear_ticks(scale.min, scale.max);  // short: too few powers
  };
  return a;
}

/** Text at the end of a line: dataset.end_label. A label that would overlap another is omitted. */
const end_labels = {
  id: "end_labels",
  afterDatasetsDraw(chart) {
    const { ctx, chartArea } = chart;
    const taken = [];
    ctx.save();
    ctx.font = `12px ${Chart.defaults.font.family}`;
    ctx.textBaseline = "middle";
    chart.data.datasets.forEach((dataset, i) => {
      const points = chart.getDatasetMeta(i).data;
      if (!dataset.end_label || points.length === 0) return;
      const at = points[dataset.end_label_at === undefined ? points.length - 1 : dataset.end_label_at];
      const width = ctx.measureText(dataset.end_label).width;
      const inside = dataset.end_label_side === "above";
      const x = Math.min(inside ? at.x - width - 4 : at.x + 8, chartArea.right - width - 2);
      const y = inside ? Math.max(at.y - 9, chartArea.top + 7) : at.y;
      if (taken.some((t) => Math.abs(t.y - y) < 13 && x < t.x + t.width + 6 && t.x < x + width + 6)) return;
      taken.push({ x, y, width });
      ctx.fillStyle = dataset.label_color || dataset.borderColor;
      ctx.fillText(dataset.end_label, x, y);
    });
    ctx.restore();
  },
};

/** Vertical lines from point.lo to point.hi on the y axis. */
const whiskers = {
  id: "whiskers",
  beforeDatasetsDraw(chart) {
    const { ctx, scales, chartArea } = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(chartArea.left, chartArea.top, chartArea.width, chartArea.height);
    ctx.clip();
    for (const dataset of chart.data.datasets) {
      ctx.strokeStyle = dataset.borderColor;
      ctx.globalAlpha = 0.55;
      ctx.beginPath();
      for (const p of dataset.data) {
        if (!is_number(p.lo) || !is_number(p.hi)) continue;
        const x = scales.x.getPixelForValue(p.x);
        ctx.moveTo(x, scales.y.getPixelForValue(p.lo));
        ctx.lineTo(x, scales.y.getPixelForValue(p.hi));
      }
      ctx.stroke();
    }
    ctx.restore();
  },
};

function tooltip_lines(r) {
  const lines = [r.kernel];
  if (is_number(r.us)) lines.push(`${micros(r.us)}${time_mark(r)} ± ${spread_text(r)} %`);
  const rates = [];
  if (is_number(r.tflops)) rates.push(flop_rate(r.tflops));
  if (is_number(r.gbs)) rates.push(`${digits(r.gbs, 3)} GB/s`);
  if (is_number(r.sol)) rates.push(`%SOL ${digits(100 * r.sol, 3)}, bound ${r.bound || "?"}`);
  if (rates.length) lines.push(rates.join(", "));
  if (is_number(r.z)) lines.push(`max |z| ${digits(r.z, 3)}`);
  if (r.shown !== "pass") lines.push(status_words[r.shown]);
  return lines;
}

/** A dataset of points that belong to results: colour and shape by kernel. */
function kernel_dataset(kernel, points, more = {}) {
  const color = theme.of_kernel(kernel);
  return {
    label: kernel, data: points, borderColor: color, backgroundColor: `${color}b0`, pointStyle: shape_of(kernel),
    radius: 4, hoverRadius: 7, hitRadius: 6, borderWidth: 1, ...more,
  };
}

/** Leaves out points that lie on others: many thousand take seconds. `x`, `y`: the axes. */
function thin_out(datasets, x, y) {
  if (datasets.reduce((n, d) => n + d.data.length, 0) < 3000) return;
  const cell = (v, a, cells) => Math.round(cells * (a.type === "logarithmic" ? Math.log(v / a.min) / Math.log(a.max / a.min) : (v - a.min) / (a.max - a.min)));
  for (const d of datasets.filter((of) => !of.showLine)) {
    const taken = new Set();
    d.data = d.data.filter((p) => taken.size !== taken.add(cell(p.x, x, 600) * 1000 + cell(p.y, y, 250)).size);
  }
}

/**
 * A figure with a heading, controls and a canvas. `draw()` returns {datasets, x, y, summary, note, lines,
 * plugins}, or null if there is nothing to show. Points with `result` have tooltips, open the case on a
 * click, and can be reached with the arrow keys.
 */
class Plot {
  constructor({ id, title, hint, controls, draw, tall }) {
    this.draw = draw;
    this.chart = null;
    this.canvas = el("canvas", { tabindex: "0", role: "application", "aria-roledescription": "chart" });
    this.box = el("div", { class: tall ? "canvas tall" : "canvas" }, this.canvas);
    this.note = el("p", { class: "note" });
    this.lines = el("ul", { class: "lines", "aria-label": "Lines" });
    this.empty = el("p", { class: "empty" }, "No case shown has what this figure needs.");
    this.title = title;
    this.figure = el("section", { class: "panel plot", id, "aria-labelledby": `${id}-title` },
      el("div", { class: "panel-head" }, el("h2", { id: `${id}-title` }, title), controls || null),
      hint ? el("p", { class: "hint" }, hint) : null, this.box, this.lines, this.empty, this.note);
    this.canvas.addEventListener("keydown", (event) => this.on_key(event));
    this.canvas.addEventListener("blur", () => this.point_at(-1));
    this.points = [];
    this.active = -1;
  }

  render() {
    const plot = this.draw();
    if (this.chart) this.chart.destroy();
    this.chart = null;
    this.box.hidden = !plot;
    this.empty.hidden = !!plot;
    this.note.textContent = plot && plot.note ? plot.note : "";
    const labels = plot && plot.lines ? plot.lines : [];
    fill(this.lines, labels.map((l) => el("li", { "data-series": String(l.series) }, el("span", { class: l.dashed ? "swatch dashed" : "swatch", "aria-hidden": "true" }), l.label)));
    this.lines.hidden = labels.length === 0;
    this.active = -1;
    if (!plot) {
      this.points = [];
      return;
    }
    this.canvas.setAttribute("aria-label", `${this.title}. ${plot.summary} Arrow keys go from point to point, Enter opens one.`);
    thin_out(plot.datasets, plot.x, plot.y);
    this.chart = new Chart(this.canvas, {
      type: plot.type || "scatter",
      data: { datasets: plot.datasets, labels: plot.labels },
      options: {
        layout: { padding: { right: 8, top: 4 } },
        scales: { x: plot.x, y: plot.y },
        interaction: { mode: "nearest", intersect: true },
        onClick: (_event, items) => this.open(items[0]),
        onHover: (event, items) => { event.native.target.classList.toggle("pointing", items.some((i) => this.result_of(i))); },
        plugins: {
          legend: { display: false },
          tooltip: {
            backgroundColor: theme.color("tip"), titleColor: theme.color("tip-ink"), bodyColor: theme.color("tip-ink"),
            displayColors: false, padding: 10, titleFont: { weight: "600", size: 12 },
            filter: (item) => plot.tip_for_all || !!this.result_of(item),
            callbacks: {
              title: (items) => (items.length ? this.tip_title(items[0]) : ""),
              label: (item) => (plot.tip ? plot.tip(item.raw) : tooltip_lines(item.raw.result)),
            },
          },
        },
      },
      plugins: [end_labels, ...(plot.plugins || [])],
    });
    this.points = plot.datasets.flatMap((d, datasetIndex) =>
      d.data.map((p, index) => ({ datasetIndex, index, x: p.x, y: p.y, result: p.result })).filter((p) => p.result));
    this.points.sort((a, b) => a.x - b.x || a.y - b.y);
  }

  result_of(item) {
    return item && this.chart ? this.chart.data.datasets[item.datasetIndex].data[item.index ?? item.dataIndex].result : null;
  }

  /** Canvas text does not wrap, so a long id is cut at its slashes into several lines. */
  tip_title(item) {
    const result = this.result_of(item);
    if (!result) return "";
    const room = narrow.matches ? 34 : 60;
    const lines = [""];
    for (const part of result.id.split(/(?<=\/)/)) {
      if (lines[lines.length - 1].length + part.length > room) lines.push("");
      lines[lines.length - 1] += part;
    }
    return lines.filter((l) => l).map((l) => cut_middle(l, room + 10));
  }

  open(item) {
    const result = this.result_of(item);
    if (result) open_case(result.index);
  }

  point_at(n) {
    if (!this.chart) return;
    this.active = n;
    const p = this.points[n];
    const items = p ? [{ datasetIndex: p.datasetIndex, index: p.index }] : [];
    this.chart.setActiveElements(items);
    const at = p ? this.chart.getDatasetMeta(p.datasetIndex).data[p.index] : { x: 0, y: 0 };
    this.chart.tooltip.setActiveElements(items, { x: at.x, y: at.y });
    this.chart.update();
    if (p) announce(`${p.result.id}, ${tooltip_lines(p.result).join(", ")}`);
  }

  on_key(event) {
    const last = this.points.length - 1;
    const next = {
      ArrowRight: Math.min(last, this.active + 1), ArrowUp: Math.min(last, this.active + 1),
      ArrowLeft: Math.max(0, this.active - 1), ArrowDown: Math.max(0, this.active - 1),
      Home: 0, End: last, PageDown: Math.min(last, this.active + 10), PageUp: Math.max(0, this.active - 10),
    }[event.key];
    if (event.key === "Enter" && this.points[this.active]) {
      open_case(this.points[this.active].result.index);
    } else if (event.key === "Escape") {
      this.point_at(-1);
    } else if (next !== undefined && last >= 0) {
      this.point_at(next);
    } else {
      return;
    }
    event.preventDefault();
  }
}
