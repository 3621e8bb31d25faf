// Rate by sequence length: how long a prompt must be for a kernel to reach its best rate.
const throughput_view = { y: "tflops" };

function throughput_plot() {
  const views = {
    tflops: [rate_unit.name, (r) => rate_unit.of(r.tflops), rate_unit.name],
    sol: ["%SOL", (r) => (is_number(r.sol) ? 100 * r.sol : NaN), "%SOL"],
  };
  const plot = new Plot({
    id: "throughput", title: "Rate by length",
    hint: "Batches of equal prompts. A line joins cases with equal settings and equal tokens in all.",
    controls: select("Show", Object.entries(views).map(([k, v]) => [k, v[0]]), throughput_view.y, (v) => { throughput_view.y = v; plot.render(); }),
    draw() {
      const [, y_of, title] = views[throughput_view.y];
      const list = shown()
        .filter((r) => is_number(r.us) && r.item.phase === "prefill" && r.item.setting !== undefined && is_number(y_of(r)) && r.params.max_q > 0)
        .map((r) => ({ x: r.params.max_q, y: y_of(r), result: r }));
      const series = series_of(list, (r) => `${r.item.setting}\n${r.params.total_q}\n${r.params.max_k - r.params.max_q}`, (r) => short_setting(r));
      const { datasets, lines } = line_datasets(joined_or_all(series));
      const drawn = datasets.flatMap((d) => d.data);
      if (!drawn.length) return null;
      const [x_min, x_max] = log_range(drawn.map((p) => p.x), 1.15);
      const top = drawn.reduce((a, b) => (a.y > b.y ? a : b));
      const roof = throughput_view.y === "tflops" ? roofs(drawn.map((p) => p.result))[0] : null;
      const roof_y = roof ? rate_unit.of(roof.tflops) : 0;
      if (roof) {
        datasets.push({
          data: [{ x: x_min, y: roof_y }, { x: x_max, y: roof_y }], showLine: true, pointRadius: 0, pointHitRadius: 0,
          borderColor: theme.color("roof"), borderWidth: 1.5, end_label: `${roof.dtype} matrix product ${digits(roof_y, 3)}`,
          end_label_side: "above", label_color: theme.color("muted"), order: 10,
        });
      }
      return {
        datasets, lines,
        x: axis({ title: "query tokens per sequence", log: true, powers: true, min: x_min, max: x_max, show: tokens }),
        y: axis({ title, min: 0, max: roof ? Math.max(roof_y, top.y) * 1.1 : top.y * 1.1 }),
        summary: `${plural(drawn.length, "case")}; the highest is ${digits(top.y, 3)} ${title}, ${top.result.name}.`,
        note: left_out(series),
      };
    },
  });
  return plot;
}

/** Setting without the parts that nearly all cases share: "h16-16 d128 causal paged64". */
function short_setting(r) {
  const p = r.params;
  const parts = [`d${p.head_dim}`, p.top_left ? "causal top-left" : p.causal ? "causal" : "full"];
  if (p.num_heads_q !== undefined) parts.unshift(`h${p.num_heads_q}-${p.num_heads_kv}`);
  if (p.kv === "paged") parts.push(`page ${p.block_size}`);
  if (p.kv_dtype !== p.dtype) parts.push(p.kv_dtype);
  return parts.join(" ");
}

/** Lines if there are any, because single cases would hide them. */
function joined_or_all(series) {
  return series.some((s) => s.points.length > 1) ? series.filter((s) => s.points.length > 1) : series;
}

function left_out(series) {
  const alone = series.filter((s) => s.points.length === 1).length;
  return alone && series.some((s) => s.points.length > 1) ? `${plural(alone, "case")} that no other continues are left out; the table below has them.` : "";
}
