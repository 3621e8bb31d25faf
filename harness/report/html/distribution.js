// The samples of one result: their histogram, and the order in which they were taken.

function histogram_plot(r) {
  return new Plot({
    id: "histogram", title: "Distribution of the time",
    draw() {
      const s = r.time.samples_us;
      const low = Math.min(...s), high = Math.max(...s);
      const count = Math.max(1, Math.min(30, Math.round(2 * Math.cbrt(s.length) * 1.5)));
      const width = (high - low) / count || Math.max(low * 1e-3, 1e-6);
      const bins = Array.from({ length: count }, (_, i) => ({ x: low + (i + 0.5) * width, y: 0 }));
      for (const v of s) bins[Math.min(count - 1, Math.floor((v - low) / width))].y += 1;
      const top = Math.max(...bins.map((b) => b.y));
      const color = theme.of_kernel(r.kernel);
      const steps = bins.flatMap((b) => [{ x: b.x - width / 2, y: b.y }, { x: b.x + width / 2, y: b.y }]);
      const line = (x, name, dash) => ({
        data: [{ x, y: 0 }, { x, y: top * 1.12 }], showLine: true, pointRadius: 0, pointHitRadius: 0, borderColor: theme.color("ink"),
        borderWidth: 1, borderDash: dash, end_label: name, label_color: theme.color("muted"),
      });
      const pad = width * 1.5;
      return {
        datasets: [
          { data: steps, showLine: true, pointRadius: 0, pointHitRadius: 0, borderColor: color, backgroundColor: `${color}40`, borderWidth: 1.5, fill: "origin" },
          line(r.time.median_us, "median", []), line(r.time.lo_us, "", [3, 3]), line(r.time.hi_us, "", [3, 3]),
        ],
        x: axis({ title: "µs", min: low - pad, max: high + pad }),
        y: axis({ title: "samples", min: 0, max: top * 1.2, show: (v) => (Number.isInteger(v) ? v : "") }),
        summary: `${plural(s.length, "sample")} from ${micros(low)} to ${micros(high)}, median ${micros(r.time.median_us)}.`,
        note: "Dashed: the 95 % interval of the median.",
      };
    },
  });
}

function sequence_plot(r) {
  return new Plot({
    id: "sequence", title: "In the order taken",
    draw() {
      const s = r.time.samples_us;
      const every = data.samples_every;
      const points = s.map((y, i) => ({ x: i * every + 1, y }));
      const color = theme.of_kernel(r.kernel);
      const room = (Math.max(...s) - Math.min(...s)) * 0.1 || s[0] * 1e-3;
      return {
        datasets: [{ data: points, borderColor: color, backgroundColor: `${color}b0`, radius: 2.5, borderWidth: 0 }],
        x: axis({ title: "sample", min: 0, max: points[points.length - 1].x + 1 }),
        y: axis({ title: "µs", min: Math.min(...s) - room, max: Math.max(...s) + room }),
        summary: `${plural(s.length, "sample")}.`,
        tip_for_all: true,
        tip: (p) => [`sample ${p.x}`, micros(p.y)],
        note: every > 1 ? `One of ${every} samples is kept in this file; the median and its interval are of all ${r.time.samples}.` : "",
      };
    },
  });
}
