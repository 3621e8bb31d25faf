// Time and rate against any parameter in which cases differ. A line joins cases that are equal in all others.
const axis_view = { axis: "", lines: "auto", rate: "" };
const kLinesOneByOne = 12;   // more are drawn thin, with their geometric mean
const kThinPoints = 5000;    // more are not drawn: their means are
const kMostLabels = 16;

/** Parameters that follow from the batch, as axes name them. */
const batch_axes = {
  max_k: "keys per sequence", max_q: "queries per sequence", num_seqs: "sequences", batch: "batch",
  total_k: "keys of all sequences", total_q: "queries of all sequences",
};
/** Parameters that equal another one unless a sweep says otherwise. */
const followed = { q_dtype: "dtype", kv_dtype: "dtype", out_dtype: "dtype", head_dim_v: "head_dim", rotary_dim: "head_dim" };

/** What cases of the page are set to: parameters that some case has no default of, without those of the batch. */
const setting_names = ["heads", ...new Set(data.cases.flatMap((c) => Object.keys(c.params || {})))]
  .filter((name) => !batch_axes[name] && !name.startsWith("num_heads_"));

function value_on(item, name) {
  const p = item.params;
  if (name === "heads") return p.num_heads_q === undefined ? undefined : `${p.num_heads_q}/${p.num_heads_kv}`;
  if (name === "batch") return item.id.split("/").find((part) => part === p.batch || part.startsWith(`${p.num_seqs}seqs-`)) || p.batch;
  return p[name];
}

/** Whether a parameter has the value of the one that it follows. */
function follows(p, name) {
  return followed[name] !== undefined && (p[name] === p[followed[name]] || p[name] === 0);
}

/** The sequences of a batch as groups of equal ones; [] if there are too many for a line by one of their lengths. */
function groups_of(batch) {
  const parts = String(batch).split("_").map((text) => /^(\d*)q([\d.]+[km]?)(?:s([\d.]+[km]?))?$/.exec(text));
  if (parts.length > 6 || parts.some((m) => !m)) return [];
  return parts.map(([text, n, q, k]) => ({ text, n: Number(n || 1), q: number_in(q), k: number_in(k || q) }));
}

/**
 * [[x, batch]]: where a case may be on an axis of lengths, and what its batch is but for the length. One group of
 * sequences differs: in its keys alone, in queries and keys, or, if there is no other, with equal queries in all.
 */
function batch_places(item, name) {
  const groups = groups_of(item.params.batch);
  return groups.flatMap((g, i) => {
    const but = (own) => groups.map((other, j) => (j === i ? own : other.text)).join("_");
    const n = g.n === 1 ? "" : g.n, keys = g.k === g.q ? "" : `s${tokens(g.k)}`, before = keys && ` after ${tokens(g.k - g.q)}`;
    if (name === "num_seqs") return [[item.params.num_seqs, but(`*q${tokens(g.q)}${keys}`)]];
    const [x, own] = name === "max_k" ? [g.k, `${n}q${tokens(g.q)}s*`] : [g.q, `${n}q*s${tokens(g.k)}`];
    return [[x, but(own)], [x, but(`${n}q*${before}`)], ...(groups.length > 1 ? [] : [[x, `${tokens(g.n * g.q)} queries${before}`]])];
  });
}

/** [{x, batch, key}] of a case: cases with equal keys are on one line. */
function places_on(item, name) {
  if (item.places && item.places.name === name) return item.places.list;
  item.settings = item.settings || setting_names.map((s) => (follows(item.params, s) ? "" : String(value_on(item, s))));
  const own = setting_names.indexOf(name);
  const rest = (own < 0 ? item.settings : item.settings.filter((_, i) => i !== own)).join("\t");
  const found = name === "batch" || is_total(name) ? [[value_on(item, name), ""]]
    : batch_axes[name] ? batch_places(item, name) : [[value_on(item, name), item.params.batch]];
  const list = found.filter(([x]) => x !== undefined).map(([x, batch]) => ({ x, batch, key: `${rest}\t${batch}` }));
  item.places = { name, list };
  return list;
}

/** [{kernel, device, item, batch, points}]: each case is on the longest of the lines that it may be on. */
function lines_on(name, list) {
  const lines = new Map();
  const places = list.map((r) => places_on(r.item, name).map((place) => {
    const key = `${r.kernel}\n${model_of(r.run)}\n${place.key}`;
    if (!lines.has(key)) lines.set(key, { kernel: r.kernel, device: model_of(r.run), item: r.item, batch: place.batch, xs: new Set(), at: new Map() });
    lines.get(key).xs.add(place.x);
    return [place.x, lines.get(key)];
  }));
  list.forEach((result, i) => {
    const [x, line] = places[i].reduce((a, b) => (a[1] && a[1].xs.size >= b[1].xs.size ? a : b), []);
    if (line) line.at.set(x, result);  // if two runs have the case, the later one
  });
  return [...lines.values()].filter((line) => line.at.size > 1);
}

function is_total(name) {
  return name === "total_k" || name === "total_q";
}

/** [[name, cases that share a line]] of the axes with lines, and of totals that differ. */
function axes_of(items) {
  const counted = [...Object.keys(batch_axes), ...setting_names].map((name) => {
    if (is_total(name)) return [name, new Set(items.map((item) => item.params[name])).size - 1];
    const seen = new Map();
    const several = {};
    for (const item of items) {
      for (const { key, x } of places_on(item, name)) seen.set(key, !seen.has(key) || seen.get(key) === x ? x : several);
    }
    return [name, items.filter((item) => places_on(item, name).some(({ key }) => seen.get(key) === several)).length];
  });
  return counted.filter(([, n]) => n > 0);
}

/** A setting of a line in a word or two. */
function setting_text(line, name) {
  if (name === "batch") return cut_middle(line.batch === line.item.params.batch ? value_on(line.item, name) : line.batch, 28);
  const value = value_on(line.item, name);
  if (value === true || value === false) return value ? name : `no ${name}`;
  return typeof value === "string" && name !== "heads" ? value : `${name} ${value ?? "none"}`;
}

/** What the lines differ in, and how many ways. */
function differences(lines, name) {
  const of = (n, value) => [n, new Set(lines.map(value)).size];
  return [
    of("kernel", (l) => l.kernel), of("device", (l) => l.device),
    ...setting_names.filter((n) => n !== name).map((n) => of(n, (l) => (follows(l.item.params, n) ? "" : value_on(l.item, n)))),
    ...(is_total(name) ? [] : [of("batch", (l) => l.batch)]),
  ].filter(([, n]) => n > 1);
}

/** The geometric mean of lines: each step between neighbours `xs` is the mean of the lines that have both its ends. */
function mean_line(lines, xs, y_of) {
  const log_at = (line, x) => (line.at.has(x) ? Math.log(y_of(line.at.get(x))) : NaN);
  const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;
  const points = [];
  for (let i = 0; i < xs.length;) {
    const part = [[xs[i], 0]];  // positions and their logarithms above the first, as far as some line goes on
    for (++i; i < xs.length; ++i) {
      const steps = lines.map((l) => log_at(l, xs[i]) - log_at(l, xs[i - 1])).filter(is_number);
      if (!steps.length) break;
      part.push([xs[i], part[part.length - 1][1] + mean(steps)]);
    }
    const level = mean(lines.flatMap((l) => part.map(([x, above]) => log_at(l, x) - above)).filter(is_number));
    if (part.length > 1) points.push(...part.map(([x, above]) => ({ x, y: Math.exp(level + above) })), { x: NaN, y: NaN });
  }
  return points;
}

/**
 * For each group, its lines with those points alone that all groups have but for `by`, so that their means compare;
 * null if there are none.
 */
function common_lines(groups, name, by) {
  const others = (line, x) => [...line.item.settings.filter((_, i) => ![name, by].includes(setting_names[i])), by === "batch" || line.batch, by === "kernel" || line.kernel, line.device, x].join("\t");
  const found = groups.map((g) => new Set(g.lines.flatMap((l) => [...l.at.keys()].map((x) => others(l, x)))));
  const kept = groups.map((g) => g.lines.map((l) => ({ ...l, at: new Map([...l.at].filter(([x]) => found.every((of) => of.has(others(l, x))))) })));
  return kept.every((lines) => lines.some((l) => l.at.size > 1)) ? kept : null;
}

/** Lines in groups of one label: what is drawn in one colour. */
function labelled(lines, name) {
  const differ = differences(lines, name);
  const ways = differ.map(([n]) => n);
  const auto = lines.length <= kLinesOneByOne && !is_total(name) ? "setting"
    : ways.includes("kernel") ? "kernel" : (differ.filter(([, n]) => n <= kMostLabels).sort((a, b) => a[1] - b[1])[0] || ["kernel"])[0];
  const by = ["setting", "kernel", ...ways].includes(axis_view.lines) ? axis_view.lines : auto;
  const named = by === "setting" ? ways : ways.filter((n) => n === by || n === "kernel" || n === "device");
  const groups = new Map();
  for (const line of lines) {
    const label = named.map((n) => (n === "kernel" || n === "device" ? line[n] : setting_text(line, n))).join(", ") || line.kernel;
    if (!groups.has(label)) groups.set(label, { label, kernel: line.kernel, lines: [] });
    groups.get(label).lines.push(line);
  }
  const all = [...groups.values()].sort((a, b) => by_name(a.label, b.label));
  all.forEach((g, i) => { g.series = by === "kernel" && !ways.includes("device") ? kernels.indexOf(g.kernel) : i; });
  const kept = all.slice(0, kMostLabels);
  const many = kept.reduce((n, g) => n + g.lines.length, 0);
  const means = by !== "setting" && !is_total(name) && many > kLinesOneByOne;
  const thin = kept.reduce((n, g) => n + g.lines.reduce((m, l) => m + l.at.size, 0), 0) <= kThinPoints;
  const common = means ? common_lines(kept, name, by) : null;
  kept.forEach((g, i) => { g.mean_of = common ? common[i] : g.lines; });
  return { by, ways, auto, means, common, thin, groups: kept, left_out: all.length - kMostLabels };
}

/** The horizontal axis: words are categories, numbers are not. */
function axis_of(name, lines) {
  const found = new Map(lines.flatMap((l) => [...l.at].map(([x, r]) => [x, name === "batch" ? r.params.total_k : x])));
  const values = [...found].sort((a, b) => by_name(a[1], b[1])).map(([x]) => x);  // batches by their keys in all
  const title = batch_axes[name] || name;
  if (!values.every(is_number)) {
    const place = new Map(values.map((v, i) => [v, i]));
    const every = Math.ceil(values.length / (narrow.matches ? 8 : 16));
    const show = (i) => cut_middle(String(values[i] ?? "none"), values.length > 4 ? 16 : 26);
    return { values, place: (v) => place.get(v), axis: axis({ title, min: -0.5, max: values.length - 0.5, show, ticks: values.map((_, i) => i).filter((i) => i % every === 0) }) };
  }
  const low = Math.min(...values), high = Math.max(...values);
  const log = low > 0 && high / low >= 4;
  const [min, max] = log ? log_range(values, 1.15) : [low - (high - low) * 0.06, high + (high - low) * 0.06];
  const share = (v) => (log ? Math.log(v / min) / Math.log(max / min) : (v - min) / (max - min));
  const apart = values.every((v, i) => i === 0 || share(v) - share(values[i - 1]) > (narrow.matches ? 0.14 : 0.08));
  return { values, place: (v) => v, axis: axis({ title, min, max, log, powers: true, show: batch_axes[name] ? tokens : tick, ticks: apart ? values : null }) };
}

function axis_datasets(view, name, place, y_of) {
  const datasets = [];
  const gap = { x: NaN, y: NaN };
  const points = (line) => [...line.at].map(([x, result]) => ({ x: place(x), y: y_of(result), result })).filter((p) => p.y > 0).sort((a, b) => a.x - b.x);
  const dashes = [[], [6, 4], [2, 3], [8, 3, 2, 3]];
  view.groups.forEach((g) => {
    const color = theme.color(`series${g.series % 8}`);
    const look = { showLine: !is_total(name), borderColor: color, backgroundColor: `${color}b0`, tension: 0, radius: 3.5, borderWidth: 1.75 };
    if (is_total(name)) {
      datasets.push(kernel_dataset(g.kernel, g.lines.flatMap(points), look));
    } else if (!view.means) {
      g.lines.forEach((line, j) => datasets.push(kernel_dataset(g.kernel, points(line), { ...look, borderDash: dashes[(j + Math.floor(g.series / 8)) % dashes.length] })));
    } else {
      if (view.thin && g.lines.length > 1)
        datasets.push(kernel_dataset(g.kernel, g.lines.flatMap((line) => [...points(line), gap]), { ...look, borderColor: `${color}50`, backgroundColor: `${color}60`, borderWidth: 1, radius: 2, order: 2 }));
      const mean = g.lines.length > 1 ? mean_line(g.mean_of, view.values, y_of).map((p) => ({ x: place(p.x), y: p.y })) : points(g.lines[0]);
      datasets.push(kernel_dataset(g.kernel, mean, { ...look, borderWidth: 2.75, radius: 4, borderDash: dashes[Math.floor(g.series / 8) % dashes.length] }));
    }
  });
  return datasets.filter((d) => d.data.length);
}

function axis_section() {
  const timed = results.filter((r) => is_number(r.us) && r.item.params);
  const axes = axes_of([...new Set(timed.map((r) => r.item))]);
  const plain = axes.filter(([name]) => name !== "batch" && !is_total(name));
  axis_view.axis = (plain.length ? plain : axes).reduce((a, b) => (b[1] > a[1] ? b : a), ["", 0])[0];
  const rates = {
    tflops: [rate_unit.name, (r) => rate_unit.of(r.tflops)], gbs: ["GB/s", (r) => r.gbs], sol: ["%SOL", (r) => (is_number(r.sol) ? 100 * r.sol : NaN)],
  };
  axis_view.rate = timed.some((r) => r.tflops > 0) ? "tflops" : "gbs";
  let view = null;
  const by_box = el("span");
  const redraw = () => { look(); time.render(); rate.render(); };
  /** What both plots show. */
  const look = () => {
    const name = axis_view.axis;
    const list = shown().filter((r) => is_number(r.us) && r.item.params);
    const lines = !name ? [] : is_total(name)
      ? list.map((r) => ({ kernel: r.kernel, device: model_of(r.run), item: r.item, batch: "", at: new Map([[r.item.params[name], r]]) })) : lines_on(name, list);
    view = lines.length ? { ...labelled(lines, name), lines, name, list, ...axis_of(name, lines) } : null;
    const options = view ? [["auto", `automatic: ${view.auto}`], ["setting", "setting"], ["kernel", "kernel"], ...view.ways.filter((w) => w !== "kernel").map((w) => [w, w])] : [];
    if (by_box.dataset.options !== String(options)) {
      by_box.dataset.options = String(options);
      fill(by_box, view ? select("A colour per", options, view.by === axis_view.lines ? view.by : "auto", (v) => { axis_view.lines = v; redraw(); }) : []);
    }
  };
  const draw = (title, y_of, force_log) => {
    const datasets = view ? axis_datasets(view, view.name, view.place, y_of) : [];
    const ys = datasets.flatMap((d) => d.data.map((p) => p.y)).filter(is_number);
    if (!ys.length) return null;
    const [low, high] = log_range(ys, 1);
    const log = force_log || high / low > 30;
    const roof = title === rate_unit.name && !log ? roofs(view.list)[0] : null;
    const roof_y = roof ? rate_unit.of(roof.tflops) : Infinity;
    if (high > roof_y / 4) {
      const { min, max } = view.axis;
      datasets.push({
        data: [{ x: min, y: roof_y }, { x: max, y: roof_y }], showLine: true, pointRadius: 0, pointHitRadius: 0, borderColor: theme.color("roof"),
        borderWidth: 1.5, end_label: `${roof.dtype} matrix product ${digits(roof_y, 3)}`, end_label_side: "above", label_color: theme.color("muted"), order: 10,
      });
    }
    return {
      datasets, x: view.axis,
      y: axis(log ? { title, log, min: low / 1.3, max: high * 1.3 } : { title, min: 0, max: (high > roof_y / 4 ? Math.max(high, roof_y) : high) * 1.1 }),
      summary: `${plural(view.lines.length, is_total(view.name) ? "case" : "line")} by ${batch_axes[view.name] || view.name}.`,
      lines: view.groups.map((g) => ({ label: g.label, series: g.series % 8, dashed: g.series >= 8 })), note: axis_note(view),
    };
  };
  const time = new Plot({ id: "time", title: "Time", draw: () => draw("median time, µs", (r) => r.us, true) });
  const rate = new Plot({
    id: "rate", title: "Rate", draw: () => draw(...rates[axis_view.rate], false),
    controls: select("Show", Object.entries(rates).map(([k, v]) => [k, v[0]]), axis_view.rate, (v) => { axis_view.rate = v; rate.render(); }),
  });
  const figure = el("section", { class: "panel", id: "by-axis", "aria-labelledby": "by-axis-title" },
    el("div", { class: "panel-head" }, el("h2", { id: "by-axis-title" }, "Time and rate by axis"),
      el("span", { class: "choices" }, axes.length ? select("Against", axes.map(([n]) => [n, batch_axes[n] && n !== "batch" ? `${batch_axes[n]} (${n})` : n]), axis_view.axis, (v) => { axis_view.axis = v; redraw(); }) : null, by_box)),
    el("p", { class: "hint" }, "A line joins cases of a kernel that differ in the horizontal axis alone."),
    el("div", { class: "pair" }, time.figure, rate.figure), time.lines, time.note);
  rate.lines.remove();
  rate.note.remove();
  return { figure, render: redraw };
}

function axis_note(view) {
  const notes = [];
  const on_lines = view.lines.reduce((n, l) => n + l.at.size, 0);
  if (view.left_out > 0) notes.push(`${plural(view.left_out, "more label")} would not be readable: filter, or choose another colour.`);
  if (view.means)
    notes.push(`Thick: geometric means over ${view.common ? "the cases that all colours have" : "cases that are not the same for all colours"}${view.thin ? "; thin: the cases" : ""}.`);
  if (view.list.length > on_lines) notes.push(`Left out: ${plural(view.list.length - on_lines, "case")} that no other continues; the table below has them.`);
  return notes.join(" ");
}
