"""Tables and plot of the smallest faults that are caught, from files that `attnbench selftest --sensitivity`
wrote. A part of readme_tables.py."""
import math

PANELS = [
    ("scale_o", "smallest relative error of softmax_scale, in O"),
    ("dropped_keys_o", "fewest dropped keys of each sequence, in O"),
    ("lse", "smallest offset of the LSE"),
]
CONTEXTS = 3  # rows of a table: the shortest, the middle and the longest context
TABLES = [
    ("Smallest relative error of `softmax_scale`: that any detector sees / that those of O see", ("scale", "scale_o")),
    ("Fewest dropped keys of each sequence", ("dropped_keys", "dropped_keys_o")),
    ("Smallest offset of every LSE", ("lse",)),
]
COLOURS = ["#0b62a4", "#c8500a", "#3a7d34"]
MARKS = ["circle", "square", "triangle"]


def number(key, row):
    x = row[key]["smallest"]
    if x is None:
        return "none"
    return f"{x:.0f}" if key.startswith("dropped") else f"{x:.1e}"


def columns(rows):
    """All (dtype, p_type) of the rows; P in fp32 comes last."""
    found = dict.fromkeys((r["dtype"], r["p_type"]) for r in rows)
    return sorted(found, key=lambda c: c[1] == "fp32")


def tables(rows):
    by = {(r["dtype"], r["p_type"], r["context"]): r for r in rows}
    contexts, lines = sorted({r["context"] for r in rows}), []
    shown = [contexts[i * (len(contexts) - 1) // (CONTEXTS - 1)] for i in range(CONTEXTS)]
    for title, keys in TABLES:
        if all(number(key, r) == "1" for key in keys for r in rows):
            lines += ["", f"{title}: 1 at every context."]
            continue
        if keys == ("lse",):  # the same for all types, within a step of the search
            worst = {c: max((r for r in rows if r["context"] == c), key=lambda r: r["lse"]["smallest"]) for c in shown}
            lines += ["", f"{title}: " + ", ".join(f"{number('lse', r)} at {c:,} keys" for c, r in worst.items()) + "."]
            continue
        lines += ["", title + ":", ""]
        lines.append("| context | " + " | ".join(f"{t}, P in {p}" for t, p in columns(rows)) + " |")
        lines.append("|--:" * (1 + len(columns(rows))) + "|")
        for context in shown:
            cells = [f"{context:,}"]
            for t, p in columns(rows):
                r = by.get((t, p, context))
                cells.append(" / ".join(number(key, r) for key in keys) if r else "")
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def mark(shape, x, y, colour):
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}"/>'
    if shape == "square":
        return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="{colour}"/>'
    return f'<path d="M{x:.1f} {y - 4:.1f}l4 7h-8z" fill="{colour}"/>'


def ticks(lo, hi):
    """Powers of ten from lo to hi; lo and hi if there are fewer than two."""
    tens = [10.0**e for e in range(math.ceil(math.log10(lo) - 1e-9), math.floor(math.log10(hi) + 1e-9) + 1)]
    return tens if len(tens) >= 2 else [lo, hi]


def panel(rows, key, title, x0, width, height):
    points = [r[key]["smallest"] for r in rows if r[key]["smallest"]]
    lo, hi = min(points), max(points)
    lo, hi = (10 ** math.floor(math.log10(lo)), 10 ** math.ceil(math.log10(hi)))
    if lo == hi:
        hi = lo * 10
    contexts = sorted({r["context"] for r in rows})
    left, right, top, bottom = x0 + 52, x0 + width - 14, 44, height - 46

    def px(c):
        span = math.log2(contexts[-1] / contexts[0]) or 1
        return left + (right - left) * math.log2(c / contexts[0]) / span

    def py(v):
        return bottom - (bottom - top) * math.log(v / lo) / math.log(hi / lo)

    out = [f'<text x="{left}" y="24" font-weight="600">{title}</text>']
    for v in ticks(lo, hi):
        label = f"{v:.0f}" if v >= 1 else f"1e{round(math.log10(v))}"
        out.append(f'<path d="M{left} {py(v):.1f}H{right}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{py(v) + 4:.1f}" text-anchor="end">{label}</text>')
    for i, c in enumerate(contexts):
        if i % 2 == 0:
            label = f"{c // 1024}k" if c >= 1024 else str(c)
            out.append(f'<text x="{px(c):.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    out.append(f'<path d="M{left} {bottom}H{right}" stroke="#444"/>')
    styles = {t: style for t, style in zip(dict.fromkeys(r["dtype"] for r in rows), zip(COLOURS, MARKS))}
    for t, p in columns(rows):
        colour, shape = styles[t]
        dash = ' stroke-dasharray="4 3"' if p == "fp32" else ""
        line = [
            (px(r["context"]), py(r[key]["smallest"]))
            for r in rows
            if (r["dtype"], r["p_type"]) == (t, p) and r[key]["smallest"]
        ]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in line)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
        out += [mark(shape, x, y, colour) for x, y in line]
    return out


def plot(rows):
    width, height = 340, 300
    types = list(dict.fromkeys(r["dtype"] for r in rows))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width * 3} {height}" font-family="sans-serif" '
        f'font-size="12" fill="#222"><title>Smallest faults that are caught, by context</title>',
        f'<rect width="{width * 3}" height="{height}" fill="#fff"/>',
    ]
    for i, (key, title) in enumerate(PANELS):
        out += panel(rows, key, title, i * width, width, height)
    for i, (t, colour, shape) in enumerate(zip(types, COLOURS, MARKS)):
        x = 60 + 110 * i
        out += [mark(shape, x, height - 12, colour), f'<text x="{x + 10}" y="{height - 8}">{t}</text>']
    out.append(f'<text x="400" y="{height - 8}">line: P in 16 bits, dashes: P in fp32</text>')
    out.append(f'<text x="{width * 3 - 14}" y="{height - 8}" text-anchor="end">keys per sequence</text></svg>')
    return "\n".join(out) + "\n"
