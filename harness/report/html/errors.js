// Errors in units of their derived standard deviation, with their limits.
const error_view = { y: "max_z" };

function error_plot() {
  const views = {
    max_z: ["largest |z| of an element", "max |z|"],
    max_row_z2: ["mean z² of the worst row, over its limit", "row z² over its limit"],
    bias_se: ["slope of the error, in standard errors", "bias, standard errors"],
    lse_max_z: ["largest |z| of a log-sum-exp", "max |z| of LSE"],
  };
  const plot = new Plot({
    id: "errors", title: "Errors",
    hint: "Difference from the float64 reference in units of the standard deviation that the kernel's declared arithmetic explains. A result past the line fails.",
    controls: select("Show", Object.entries(views).map(([k, v]) => [k, v[0]]), error_view.y, (v) => { error_view.y = v; plot.render(); }),
    draw() {
      const key = error_view.y;
      const limit = data.limits[key];
      const list = shown().filter((r) => r.check && r.check.method !== "bitwise" && is_number(r.check[key]) && r.check.rows > 0);
      if (!list.length) return null;
      const [x_min, x_max] = log_range(list.map((r) => r.check.rows), 1.4);
      const top = list.reduce((a, b) => (a.check[key] > b.check[key] ? a : b));
      const highest = Math.min(Math.max(limit, top.check[key]) * 1.12, limit * 4);
      const datasets = [{
        data: [{ x: x_min, y: limit }, { x: x_max, y: limit }], showLine: true, pointRadius: 0, pointHitRadius: 0,
        borderColor: theme.color("bad"), borderWidth: 1.5, end_label: `limit ${limit}`, end_label_side: "above", order: 10,
      }];
      for (const kernel of kernels) {
        const points = list.filter((r) => r.kernel === kernel)
          .map((r) => ({ x: r.check.rows, y: Math.min(r.check[key], highest), result: r }));
        if (points.length) datasets.push(kernel_dataset(kernel, points, { radius: 3 }));
      }
      const over = list.filter((r) => !(r.check[key] <= limit)).length;
      return {
        datasets,
        x: axis({ title: "rows compared", log: true, min: x_min, max: x_max}),
        y: axis({ title: views[key][1], min: 0, max: highest }),
        summary: `${plural(list.length, "result")}, ${over} past the limit of ${limit}; the largest is ${digits(top.check[key], 3)}, ${top.name}.`,
        note: `${plural(list.length, "result")}, ${over} past the limit; largest ${digits(top.check[key], 3)} of ${limit}.`,
      };
    },
  });
  return plot;
}
