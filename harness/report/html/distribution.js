// The samples of one result: their histogram, and the order in which they were taken.

function outliers_of(t) {
  return t.outliers_us || [];
}

/** [[name, time, dash]] of the lines across both plots. */
function marked_times(t) {
  if (t.two_speeds) return [["fast", t.two_speeds[0], [6, 3]], ["slow", t.two_speeds[1], [6, 3]]];
  return [["p50", t.median_us, []]];
}

function speeds_text(t) {
  return t.two_speeds ? `Two speeds: ${micros(t.two_speeds[0])} in ${percent(t.two_speeds[2], 2)} of the samples, ${micros(t.two_speeds[1])} in the others. Look for what differs between launches.` : "";
}

function histogram_plot(r) {
  return new Plot({
    id: "histogram", title: "Distribution of the time",
    draw() {
      const t = r.time, all = t.samples_us;
      const outliers = outliers_of(t), s = all.filter((v) => !outliers.includes(v));
      const low = Math.min(...s), high = Math.max(...s);
      const count = Math.max(1, Math.min(30, Math.round(2 * Math.cbrt(s.length) * 1.5)));
      const width = (high - low) / count || Math.max(low * 1e-3, 1e-6);
      const bins = Array.from({ length: count }, (_, i) => ({ x: low + (i + 0.5) * width, y: 0 }));
      for (const v of s) bins[Math.min(count - 1, Math.floor((v - low) / width))].y += 1;
      const top = Math.max(...bins.map((b) => b.y));
      const color = theme.of_kernel(r.kernel);
      const steps = bins.flatMap((b) => [{ x: b.x - width / 2, y: b.y }, { x: b.x + width / 2, y: b.y }]);
      // The axis ends near the samples that are no outliers; those beyond stand at its end.
      const span = (high - low || width) * (outliers.length ? 0.25 : 0.06);
      const x_min = low - (outliers.some((v) => v < low) ? span : width), x_max = high + Math.max(span, width);
      const room = (x_max - x_min) / 50;
      const inside = (v) => Math.min(Math.max(v, x_min), x_max);
      const line = (x, name, dash, height) => ({
        data: [{ x: inside(x), y: 0 }, { x: inside(x), y: top * height }], showLine: true, pointRadius: 0, pointHitRadius: 0, borderColor: theme.color("ink"),
        borderWidth: 1, borderDash: dash, end_label: name, label_color: theme.color("ink"),
      });
      const ends = is_number(t.p99_us) ? [["min", t.min_us], ["p90", t.p90_us], ["p99", t.p99_us]] : [];
      const speeds = t.two_speeds ? marked_times(t) : [];
      return {
        datasets: [
          { data: steps, showLine: true, pointRadius: 0, pointHitRadius: 0, borderColor: color, backgroundColor: `${color}40`, borderWidth: 1.5, fill: "origin" },
          line(t.median_us, "p50", [], 1.22), line(t.lo_us, "", [3, 3], 1.02), line(t.hi_us, "", [3, 3], 1.02),
          ...ends.map(([name, v], i) => line(v, inside(v) === v ? name : `${name} ${micros(v)}`, [1, 3], [1.22, 1.13, 1.04][i])),
          ...speeds.map(([name, v, dash], i) => line(v, name, dash, 1.32 - 0.001 * i)),
          { label: "outliers", data: outliers.map((v) => ({ x: v < x_min ? x_min + room : Math.min(v, x_max - room), y: top * 0.04, us: v })), borderColor: theme.color("bad"), backgroundColor: "transparent", radius: 4, borderWidth: 1.5 },
        ],
        x: axis({ title: "µs", min: x_min, max: x_max }),
        y: axis({ title: "samples", min: 0, max: top * 1.4, show: (v) => (Number.isInteger(v) ? v : "") }),
        summary: `${plural(all.length, "sample")} from ${micros(Math.min(...all))} to ${micros(Math.max(...all))}, median ${micros(t.median_us)}.`,
        tip_for_all: true,
        tip: (p) => (p.us ? [`outlier: ${micros(p.us)}`] : []),
        note: ["Dashed: the 95 % interval of the median.", speeds_text(t), outliers.length
          ? `Circles: ${plural(outliers.length, "outlier")}, up to ${micros(Math.max(...outliers))}; those beyond the axis stand at its end.` : ""].filter(Boolean).join(" "),
      };
    },
  });
}

function sequence_plot(r) {
  return new Plot({
    id: "sequence", title: "In the order taken",
    draw() {
      const t = r.time, s = t.samples_us;
      const every = data.samples_every;
      const points = s.map((y, i) => ({ x: i * every + 1, y }));
      const color = theme.of_kernel(r.kernel);
      const room = (Math.max(...s) - Math.min(...s)) * 0.1 || s[0] * 1e-3;
      const x_max = points[points.length - 1].x + 1;
      return {
        datasets: [
          { data: points.filter((p) => !outliers_of(t).includes(p.y)), borderColor: color, backgroundColor: `${color}b0`, radius: 2.5, borderWidth: 0 },
          { label: "outliers", data: points.filter((p) => outliers_of(t).includes(p.y)), borderColor: theme.color("bad"), backgroundColor: "transparent", radius: 4, borderWidth: 1.5 },
          ...marked_times(t).map(([name, y, dash]) => ({
            data: [{ x: 0, y }, { x: x_max, y }], showLine: true, pointRadius: 0, pointHitRadius: 0, borderColor: theme.color("roof"), borderWidth: 1, borderDash: dash,
            end_label: name, end_label_side: "above", label_color: theme.color("muted"), order: 10,
          })),
        ],
        x: axis({ title: "sample", min: 0, max: x_max }),
        y: axis({ title: "µs", min: Math.min(...s) - room, max: Math.max(...s) + room }),
        summary: `${plural(s.length, "sample")}.`,
        tip_for_all: true,
        tip: (p) => [`sample ${p.x}`, micros(p.y)],
        note: every > 1 ? `One of ${every} samples is kept in this file; the median and its interval are of all ${t.samples}.` : "",
      };
    },
  });
}
