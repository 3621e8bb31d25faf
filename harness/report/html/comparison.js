// Ratios of times with their intervals: against a baseline, with the verdicts of `attnbench compare`, and of two
// kernels of this page.
const change_class = {
  slower: "bad", error: "bad", incorrect: "bad", "missing in new": "warn", inconclusive: "warn", faster: "good",
  same: "", "missing in base": "", "not compared": "",
};
/**
 * A plot of ratios in their order, above a table. `rows()` returns [{ratio, lo, hi, change, result}] in the order of
 * the table, which has `listed` of them, `cells(row)` what stands below `head`; `band` is the difference that does not count, or 0.
 */
function ratio_plot({ id, title, hint, controls, rows, listed, band, y, tip, above, head, cells }) {
  const body = el("tbody");
  const more = el("p", { class: "note" });
  const list = (all) => {
    fill(body, all.slice(0, listed).map((row) => el("tr", {}, cells(row).map((cell, i) => el("td", { class: head[i][1] || null }, cell)))));
    more.textContent = all.length > listed ? `The first ${listed} of ${all.length.toLocaleString("en-US")}; the filter narrows them.` : "";
  };
  const plot = new Plot({
    id, title, hint, controls,
    draw() {
      const all = rows();
      list(all);
      const drawn = all.filter((row) => is_number(row.ratio)).sort((a, b) => a.ratio - b.ratio);
      if (!drawn.length) return null;
      const groups = new Map();
      drawn.forEach((row, i) => {
        if (!groups.has(row.change)) groups.set(row.change, []);
        groups.get(row.change).push({ x: i + 1, y: row.ratio, lo: row.lo, hi: row.hi, result: row.result, row });
      });
      const ends = drawn.flatMap((row) => [row.ratio, row.lo ?? row.ratio, row.hi ?? row.ratio]);
      const [low, high] = log_range([...ends, 1 - 1.5 * band, 1 + 1.5 * band], 1);
      const log = high / low > 4, [y_min, y_max] = log ? [low / 1.2, high * 1.2] : [low / 1.01, high * 1.01];
      const room = Math.max(0.7, drawn.length * 0.015), x_min = 1 - room, x_max = drawn.length + room;
      const flat = (at, dash) => ({
        data: [{ x: x_min, y: at }, { x: x_max, y: at }], showLine: true, pointRadius: 0, pointHitRadius: 0,
        borderColor: theme.color("roof"), borderWidth: 1, borderDash: dash, order: 10,
      });
      const datasets = [flat(1, []), ...(band ? [flat(1 + band, [5, 4]), flat(1 - band, [5, 4])] : [])];
      for (const [change, points] of groups) {
        const color = theme.color(change_class[change] || "muted");
        datasets.push({ label: change, data: points, borderColor: color, backgroundColor: color, radius: 3, hoverRadius: 6 });
      }
      return {
        datasets, plugins: [whiskers],
        x: { ...axis({ title: "cases, in the order of their ratio", min: x_min, max: x_max }), ticks: { display: false } },
        y: axis({ title: y(), min: y_min, max: y_max, log }),
        summary: `${plural(drawn.length, "case")} compared.`,
        tip: (p) => (p.row ? [...tip(p.row), `× ${digits(p.row.ratio)} (${digits(p.row.lo)} to ${digits(p.row.hi)})`] : []),
      };
    },
  });
  plot.figure.append(...above.filter(Boolean),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      el("table", {}, el("thead", {}, el("tr", {}, head.map(([name, of]) => el("th", { scope: "col", class: of === "number" ? of : null }, name)))), body)), more);
  return plot;
}

function ratio_cells(row) {
  return [digits(row.ratio), is_number(row.lo) ? `${digits(row.lo)} – ${digits(row.hi)}` : kNone];
}

function ratio_chips(counts, geomean) {
  return [...counts.map(([change, n]) => el("span", { class: `chip ${change_class[change] || ""}` }, `${n.toLocaleString("en-US")} ${change}`)),
    is_number(geomean) ? el("span", { class: "chip" }, `geometric mean × ${digits(geomean)}`) : null].filter(Boolean);
}

function comparison_section() {
  const c = data.comparison;
  const all = c.rows.map((row) => ({ ...row, result: row.result === undefined ? null : results[row.result] }));
  return ratio_plot({
    id: "comparison", title: "Against the baseline", listed: 100, band: c.min_effect, y: () => "time, new over baseline",
    hint: `Ratio of times (the mean of the middle half of the samples), ${c.as_sol ? "each as a multiple of its least possible time, " : ""}new over ${c.base}, with 95 % intervals. Within the dashed lines a difference does not count (${percent(c.min_effect, 2)}).`,
    rows: () => all.filter((row) => !["missing in base", "not compared"].includes(row.change) && (row.result ? is_shown(row.result) : state.filter.trim() === "")),
    tip: (row) => [row.kernel, row.change, `${micros(row.base_us)} → ${micros(row.new_us)}`],
    above: [
      c.mismatches.length ? el("p", { class: "notice" }, `The two were not taken alike, so %SOL are compared: ${c.mismatches.join("; ")}.`) : null,
      el("p", { class: "chips" }, ratio_chips(Object.entries(c.counts), c.geomean)),
    ],
    head: [["verdict"], ["case", "id"], ["kernel"], ["baseline", "number"], ["new", "number"], ["ratio", "number"], ["95 % interval", "number"], ["note"]],
    cells: (row) => [
      el("span", { class: `badge ${change_class[row.change] || ""}` }, row.change), row.result ? id_link(row.result) : id_text(row.id),
      row.kernel || row.base_kernel, micros(row.base_us), micros(row.new_us), ...ratio_cells(row), row.note || "",
    ],
  });
}

/** [{result, other, ratio, lo, hi, change}]: kernel a over kernel b, the greatest ratio first; of one run if both ran in it. */
function pairs_of(a, b, list) {
  const cases = new Map();
  for (const r of list) {
    if (!is_number(r.us) || (r.kernel !== a && r.kernel !== b)) continue;
    const key = `${model_of(r.run)}\n${r.id}`;
    if (!cases.has(key)) cases.set(key, { [a]: [], [b]: [] });
    cases.get(key)[r.kernel].push(r);
  }
  const rows = [];
  for (const of of cases.values()) {
    const other = of[b].findLast((o) => of[a].some((r) => r.run === o.run)) || of[b].at(-1);
    const result = of[a].findLast((r) => other && r.run === other.run) || of[a].at(-1);
    if (!result || !other) continue;
    const ratio = result.us / other.us;
    // Independent intervals add in quadrature, on a logarithmic scale.
    const far = (x, y) => Math.exp(Math.hypot(Math.log(x), Math.log(y)));
    const lo = ratio / far(result.us / result.time.lo_us, other.time.hi_us / other.us);
    const hi = ratio * far(result.time.hi_us / result.us, other.us / other.time.lo_us);
    rows.push({ result, other, ratio, lo, hi, change: lo > 1 ? "slower" : hi < 1 ? "faster" : is_number(lo) && is_number(hi) ? "alike" : "no interval" });
  }
  return rows.sort((x, y) => y.ratio - x.ratio);
}

/** Null if no case was timed with two kernels. */
function versus_section() {
  const shared = new Map();
  const of_case = new Map();
  for (const r of results.filter((o) => is_number(o.us) && o.kernel !== "none")) {
    const key = `${model_of(r.run)}\n${r.id}`;
    const before = of_case.get(key) || of_case.set(key, new Set()).get(key);
    if (before.has(r.kernel)) continue;
    for (const other of before) shared.set(`${other}\n${r.kernel}`, (shared.get(`${other}\n${r.kernel}`) || 0) + 1);
    before.add(r.kernel);
  }
  if (!shared.size) return null;
  const names = kernels.filter((k) => [...shared.keys()].some((pair) => pair.split("\n").includes(k)));
  let [a, b] = [...shared].reduce((x, y) => (y[1] > x[1] ? y : x))[0].split("\n");
  const counts = el("p", { class: "chips" });
  const choose = (label, chosen, set) => select(label, names.map((k) => [k, k]), chosen, (k) => { set(k); plot.render(); });
  const plot = ratio_plot({
    id: "versus", title: "Kernel against kernel", listed: 15, band: 0, y: () => `time of ${a} over ${b}`,
    hint: "Ratio of the median times of each case, with the interval that follows from the 95 % intervals of both. Below 1 the first kernel is faster.",
    controls: el("span", { class: "choices" }, choose("Time of", a, (k) => { a = k; }), choose("over", b, (k) => { b = k; })),
    rows() {
      const rows = a === b ? [] : pairs_of(a, b, results.filter((r) => state.matches(r)));
      const geomean = Math.exp(rows.reduce((sum, row) => sum + Math.log(row.ratio), 0) / rows.length);
      fill(counts, ratio_chips(["slower", "alike", "no interval", "faster"].map((c) => [c, rows.filter((row) => row.change === c).length]).filter(([, n]) => n), geomean));
      return rows;
    },
    tip: (row) => [`${a} ${micros(row.result.us)}, ${b} ${micros(row.other.us)}`],
    above: [counts],
    head: [["", ""], ["ratio", "number"], ["interval", "number"], ["case", "id"], ["first", "number"], ["second", "number"]],
    cells: (row) => [el("span", { class: `badge ${change_class[row.change] || ""}` }, row.change), ...ratio_cells(row), id_link(row.result), micros(row.result.us), micros(row.other.us)],
  });
  return plot;
}
