// The comparison with a baseline: the same verdicts as `attnbench compare`.
const change_class = {
  slower: "bad", error: "bad", incorrect: "bad", "missing in new": "warn", inconclusive: "warn", faster: "good",
  same: "", "missing in base": "", "not compared": "",
};

function comparison_section() {
  const c = data.comparison;
  const result_of = (row) => (row.result === undefined ? null : results[row.result]);
  const rows_shown = () => c.rows.filter((row) => {
    const r = result_of(row);
    return r ? is_shown(r) : state.filter.trim() === "";
  });
  const plot = new Plot({
    id: "comparison", title: "Against the baseline",
    hint: `Ratio of times (the mean of the middle half of the samples), ${c.as_sol ? "each as a multiple of its least possible time, " : ""}new over ${c.base}, with 95 % intervals. Within the dashed lines a difference does not count (${percent(c.min_effect, 2)}).`,
    draw() {
      const rows = rows_shown().filter((row) => is_number(row.ratio));
      table();
      if (!rows.length) return null;
      rows.sort((a, b) => a.ratio - b.ratio);
      const groups = new Map();
      rows.forEach((row, i) => {
        if (!groups.has(row.change)) groups.set(row.change, []);
        groups.get(row.change).push({ x: i + 1, y: row.ratio, lo: row.lo, hi: row.hi, result: result_of(row), row });
      });
      const ends = rows.flatMap((row) => [row.ratio, row.lo ?? row.ratio, row.hi ?? row.ratio]);
      const [y_min, y_max] = log_range([...ends, 1 - 1.5 * c.min_effect, 1 + 1.5 * c.min_effect], 1.01);
      const flat = (y, dash) => ({
        data: [{ x: 0.3, y }, { x: rows.length + 0.7, y }], showLine: true, pointRadius: 0, pointHitRadius: 0,
        borderColor: theme.color("roof"), borderWidth: 1, borderDash: dash, order: 10,
      });
      const datasets = [flat(1, []), flat(1 + c.min_effect, [5, 4]), flat(1 - c.min_effect, [5, 4])];
      for (const [change, points] of groups) {
        const color = theme.color(change_class[change] || "muted");
        datasets.push({ label: change, data: points, borderColor: color, backgroundColor: color, radius: 3, hoverRadius: 6 });
      }
      return {
        datasets, plugins: [whiskers],
        x: { ...axis({ title: "cases, in the order of their ratio", min: 0.3, max: rows.length + 0.7 }), ticks: { display: false } },
        y: axis({ title: "time, new over baseline", min: y_min, max: y_max }),
        summary: `${plural(rows.length, "case")} compared${is_number(c.geomean) ? `, geometric mean ${digits(c.geomean)}` : ""}.`,
        tip: (p) => (p.row ? [p.row.kernel, p.row.change, `${micros(p.row.base_us)} → ${micros(p.row.new_us)}`,
          `× ${digits(p.row.ratio)} (${digits(p.row.lo)} to ${digits(p.row.hi)})`] : []),
      };
    },
  });
  const counts = el("p", { class: "chips" }, Object.entries(c.counts).map(([change, n]) =>
    el("span", { class: `chip ${change_class[change] || ""}` }, `${n.toLocaleString("en-US")} ${change}`)),
  is_number(c.geomean) ? el("span", { class: "chip" }, `geometric mean × ${digits(c.geomean)}`) : null);
  const body = el("tbody");
  const more = el("p", { class: "note" });
  const table = () => {
    const rows = rows_shown().filter((row) => !["missing in base", "not compared"].includes(row.change));
    fill(body, rows.slice(0, 100).map((row) => {
      const r = result_of(row);
      return el("tr", {},
        el("td", {}, el("span", { class: `badge ${change_class[row.change] || ""}` }, row.change)),
        el("td", { class: "id" }, r ? el("a", { href: case_link(r.index) }, row.id) : row.id),
        el("td", {}, row.kernel || row.base_kernel),
        el("td", { class: "number" }, micros(row.base_us)), el("td", { class: "number" }, micros(row.new_us)),
        el("td", { class: "number" }, digits(row.ratio)), el("td", { class: "number" }, is_number(row.lo) ? `${digits(row.lo)} – ${digits(row.hi)}` : kNone),
        el("td", {}, row.note || ""));
    }));
    more.textContent = rows.length > 100 ? `The first 100 of ${rows.length}; the filter narrows them.` : "";
  };
  const head = ["verdict", "case", "kernel", "baseline", "new", "ratio", "95 % interval", "note"];
  plot.figure.append(
    c.mismatches.length ? el("p", { class: "notice" }, `The two were not taken alike, so %SOL are compared: ${c.mismatches.join("; ")}.`) : "",
    counts,
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Verdicts" },
      el("table", {}, el("thead", {}, el("tr", {}, head.map((h, i) => el("th", { scope: "col", class: i >= 3 && i <= 6 ? "number" : null }, h)))), body)), more);
  return plot;
}
