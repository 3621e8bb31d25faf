// A line joins cases that differ only in one length. Other cases stay points.

/** [{kernel, label, points}]: results with equal `key` are one series, in the order of x. */
function series_of(list, key, label) {
  const groups = new Map();
  for (const p of list) {
    const k = `${p.result.kernel}\n${p.result.run.device ? model_of(p.result.run) : ""}\n${key(p.result)}`;
    if (!groups.has(k)) groups.set(k, { kernel: p.result.kernel, label: label(p.result), points: new Map() });
    groups.get(k).points.set(p.x, p);  // if two runs have the case, the later one
  }
  return [...groups.values()].map((g) => ({ ...g, points: [...g.points.values()].sort((a, b) => a.x - b.x) }));
}

/**
 * {datasets, lines}: a line for each series of two points or more, else points by kernel. The label sets a
 * line's colour, the kernel sets the shape of its points, and dashes separate lines with the same label.
 */
function line_datasets(series) {
  const lines = series.filter((s) => s.points.length > 1);
  const alone = series.filter((s) => s.points.length === 1);
  const labels = [...new Set(lines.map((s) => s.label))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const dashes = [[], [6, 4], [2, 3], [8, 3, 2, 3]];
  const seen = new Map();
  const datasets = lines.map((s) => {
    const n = seen.get(s.label) || 0;
    seen.set(s.label, n + 1);
    const series_number = labels.indexOf(s.label) % 8;
    const color = theme.color(`series${series_number}`);
    return kernel_dataset(s.kernel, s.points, {
      showLine: true, borderWidth: 1.75, borderColor: color, backgroundColor: `${color}b0`,
      borderDash: dashes[(n + Math.floor(labels.indexOf(s.label) / 8)) % dashes.length], radius: 3.5, tension: 0,
    });
  });
  for (const kernel of new Set(alone.map((s) => s.kernel))) {
    datasets.push(kernel_dataset(kernel, alone.filter((s) => s.kernel === kernel).flatMap((s) => s.points), { radius: 3 }));
  }
  return { datasets, lines: labels.map((label, i) => ({ label, series: i % 8, dashed: i >= 8 })) };
}
