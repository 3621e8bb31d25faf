// Every timed case and the machine's limits: memory below the slope, arithmetic below the flat line.

/** One roof per device and element type: the best that any run of that device measured. */
function roofs(list) {
  const found = new Map();
  for (const r of list) {
    const c = r.run.ceilings;
    if (!c || !is_number(c.read_gbs) || !c.matmul_tflops) continue;
    for (const dtype of [r.params.dtype, r.params.q_dtype]) {  // of 8 bits, queries have products of their own rate
      if (!is_number(c.matmul_tflops[dtype])) continue;
      const key = `${model_of(r.run)}\n${dtype}`;
      const roof = found.get(key) || { device: model_of(r.run), dtype, gbs: 0, tflops: 0 };
      roof.gbs = Math.max(roof.gbs, c.read_gbs);
      roof.tflops = Math.max(roof.tflops, c.matmul_tflops[dtype]);
      found.set(key, roof);
    }
  }
  return [...found.values()].sort((a, b) => b.tflops - a.tflops);
}

function roof_datasets(list, x_min, x_max) {
  const all = roofs(list);
  const devices = [...new Set(all.map((r) => r.device))];
  const datasets = [];
  const named = [];  // flat ends with a label; equal ends share it
  for (const roof of all) {
    const ridge = roof.tflops * 1e3 / roof.gbs;
    const [slope, flat] = [rate_unit.of(roof.gbs / 1e3), rate_unit.of(roof.tflops)];
    const label = `${roof.dtype} ${digits(flat, 3)} ${rate_unit.name}`;
    const near = named.find((n) => n.device === roof.device && Math.abs(Math.log(n.tflops / roof.tflops)) < 0.15);
    if (near) near.dataset.end_label = `${near.label}, ${label.replace(` ${rate_unit.name}`, "")}`;
    const points = [{ x: x_min, y: x_min * slope }, { x: Math.min(ridge, x_max), y: Math.min(ridge, x_max) * slope }];
    if (ridge < x_max) points.push({ x: x_max, y: flat });
    const dataset = {
      label, data: points, showLine: true, pointRadius: 0, pointHitRadius: 0, borderColor: theme.color("roof"), borderWidth: 1.5,
      borderDash: devices.indexOf(roof.device) ? [6, 4] : [], end_label: near ? "" : label, end_label_side: "above",
      label_color: theme.color("muted"), order: 10,
    };
    if (!near) named.push({ device: roof.device, tflops: roof.tflops, label, dataset });
    datasets.push(dataset);
  }
  return datasets;
}

function roofline_plot() {
  return new Plot({
    id: "roofline", title: "Roofline", tall: true,
    hint: "Arithmetic intensity against rate, one point per timed case. The lines are the read bandwidth and the matrix rates measured in the same runs.",
    draw() {
      const list = shown().filter((r) => is_number(r.intensity) && r.time && is_number(r.tflops) && r.tflops > 0 && !r.item.apart);
      if (!list.length) return null;
      const [x_min, x_max] = log_range(list.map((r) => r.intensity), 1.6);
      const datasets = roof_datasets(list, x_min, x_max);
      for (const kernel of kernels) {
        const points = list.filter((r) => r.kernel === kernel).map((r) => ({ x: r.intensity, y: rate_unit.of(r.tflops), result: r }));
        const color = theme.of_kernel(kernel);
        const doubted = (p) => p.raw && p.raw.result && p.raw.result.status !== "pass";
        if (points.length) {
          datasets.push(kernel_dataset(kernel, points, { backgroundColor: (p) => (doubted(p) ? "transparent" : `${color}b0`) }));
        }
      }
      const ceilings = datasets.flatMap((d) => (d.order ? d.data.map((p) => p.y) : []));
      const [, y_max] = log_range([...list.map((r) => rate_unit.of(r.tflops)), Math.max(0, ...ceilings)], 1.7);
      const best = list.filter((r) => r.status === "pass").reduce((a, b) => (a && a.tflops > b.tflops ? a : b), null);
      const doubted = list.filter((r) => r.status !== "pass").length;
      return {
        datasets,
        x: axis({ title: "FLOP per byte of memory traffic", log: true, min: x_min, max: x_max }),
        y: axis({ title: rate_unit.name, log: true, min: Math.min(...list.map((r) => rate_unit.of(r.tflops))) / 1.7, max: y_max }),
        summary: `${plural(list.length, "case")}${best ? `; the highest rate is ${flop_rate(best.tflops)}, ${best.name}` : ""}.`,
        note: doubted ? `Hollow: ${plural(doubted, "time")} not counted, since the result is wrong or the time below what the hardware allows.` : "",
      };
    },
  });
}
