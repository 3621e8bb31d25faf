// Decode: the time of one step by context length and by batch size.
const latency_view = { x: "context" };

/** If cases of the page are spread over ranks: the heads and ranks of this one, so that each way has a line. */
function way(r) {
  if (!results.some((other) => other.params.path === "dcp")) return "";
  const p = r.params;
  return `, h${p.num_heads_q}-${p.num_heads_kv}${p.path === "dcp" ? ` dcp ${p.dcp_ranks || 2} ${p.dcp_combine || "one_device"}` : ""}`;
}

function latency_plot() {
  const views = {
    context: ["context", "keys per sequence", (r) => r.params.max_k, (r) => `${r.params.num_seqs}`, (r) => `batch ${tokens(r.params.num_seqs)}${way(r)}`],
    batch: ["batch", "sequences in the batch", (r) => r.params.num_seqs, (r) => `${r.params.max_k}`, (r) => `context ${tokens(r.params.max_k)}`],
    total: ["keys in all", "keys of all sequences", (r) => r.params.total_k, () => "", (r) => short_setting(r)],
  };
  const plot = new Plot({
    id: "latency", title: "Decode latency",
    hint: "Steps of at most 16 query tokens per sequence, equal contexts. A line joins cases that differ in the horizontal axis alone.",
    controls: select("Against", Object.entries(views).map(([k, v]) => [k, v[0]]), latency_view.x, (v) => { latency_view.x = v; plot.render(); }),
    draw() {
      const [, title, x_of, also, label] = views[latency_view.x];
      const list = shown()
        .filter((r) => is_number(r.us) && r.item.phase === "decode" && r.item.setting !== undefined && x_of(r) > 0)
        .map((r) => ({ x: x_of(r), y: r.us, result: r }));
      const series = series_of(list, (r) => `${r.item.setting}\n${r.params.max_q}\n${also(r)}`, label);
      const { datasets, lines } = line_datasets(joined_or_all(series));
      const drawn = datasets.flatMap((d) => d.data);
      if (!drawn.length) return null;
      const [x_min, x_max] = log_range(drawn.map((p) => p.x), 1.25);
      const [y_min, y_max] = log_range(drawn.map((p) => p.y), 1.3);
      return {
        datasets, lines,
        x: axis({ title, log: true, powers: true, min: x_min, max: x_max, show: tokens }),
        y: axis({ title: "median time, µs", log: true, min: y_min, max: y_max }),
        summary: `${plural(drawn.length, "case")} from ${micros(y_min * 1.3)} to ${micros(y_max / 1.3)}.`,
        note: left_out(series),
      };
    },
  });
  return plot;
}
