#!/usr/bin/env python3
"""Spread of equal runs: of the midmeans of their samples, which attnbench compares, and of their medians.

    scripts/run_spread.py results/runs/*/results.json          # one file per run of the same sweep
    scripts/run_spread.py baseline.json --out spread.json      # or a baseline, which holds several runs

The figures are standard deviations of the logarithm over the runs, in percent: per case, and over all cases
as root mean squares. If the runs have the probes of a CPU (harness/compare/README.md), the runs of each case
are split: near are runs in which threads waited for each other at most 1.5 times as long as in the best run,
far are the others."""
import argparse
import json
import math
import pathlib
import statistics
import sys


def midmean(samples):
    """Mean of the middle half, with fractional weights at both ends."""
    x, n = sorted(samples), len(samples)
    begin, end = n / 4, n - n / 4
    return sum(v * max(0.0, min(i + 1, end) - max(i, begin)) for i, v in enumerate(x)) / (end - begin)


def runs_of(time):
    samples, counts = time["samples_us"], time.get("run_samples", [len(time["samples_us"])])
    begin = 0
    for n in counts:
        yield samples[begin:begin + n]
        begin += n


PROBES = ["cores_us", "handover_us", "memory_us"]


def probes_of(time):
    """The probes of each run; empty if the file does not have them."""
    lists = [time.get("run_" + key, [time.get(key)]) for key in PROBES]
    return list(zip(*lists)) if all(None not in x for x in lists) else []


def by_distance(runs, probes):
    """Medians of near and of far runs, and the spread of each kind in multiples of the cores' probe."""
    best = min(p[1] for p in probes)
    out = {}
    for label, near in (("near", True), ("far", False)):
        chosen = [(midmean(r), *p) for r, p in zip(runs, probes) if (p[1] < 1.5 * best) == near]
        if len(chosen) >= 3:
            out[label] = {"runs": len(chosen)} | {key: statistics.median(c[i] for c in chosen) for i, key in enumerate(["us"] + PROBES)}
            out[label]["sd_of_us_over_cores_percent"] = deviation([c[0] / c[1] for c in chosen])
    return out


def deviation(values):
    return 100 * statistics.stdev(math.log(v) for v in values)


def rms(values):
    return math.sqrt(sum(v * v for v in values) / len(values)) if values else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="RESULTS")
    parser.add_argument("--short", type=float, default=20, metavar="US", help="cases up to this time count as short ones too (default 20)")
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    cases, probes, context = {}, {}, None
    for path in args.files:
        data = json.loads(pathlib.Path(path).read_text())
        context = context or data["context"]["attnbench"]
        for entry in data["benchmarks"]:
            own = entry["attnbench"]
            if own["status"] == "pass" and own["time"]:
                cases.setdefault(entry["name"], []).extend(runs_of(own["time"]))
                probes.setdefault(entry["name"], []).extend(probes_of(own["time"]))
    rows = []
    for name, runs in cases.items():
        if len(runs) < 3:
            continue
        medians = [statistics.median(r) for r in runs]
        rows.append({"case": name, "runs": len(runs), "samples": sum(map(len, runs)), "median_us": statistics.median(medians),
                     "sd_of_midmeans_percent": deviation([midmean(r) for r in runs]), "sd_of_medians_percent": deviation(medians)})
        if len(probes[name]) == len(runs):
            rows[-1] |= by_distance(runs, probes[name])
    if not rows:
        sys.exit("run_spread: no case has three runs")
    command = context.get("command_line") or []
    out = {"made_by": "scripts/run_spread.py", "version": context["version"], "revision": context["revision"],
           "device": context["device"]["model"], "command": " ".join([pathlib.Path(a).name for a in command[:1]] + command[1:]), "sets": {}}
    for label, chosen in (("all", rows), (f"up to {args.short:g} us", [r for r in rows if r["median_us"] <= args.short])):
        out["sets"][label] = {"cases": len(chosen)} | {
            key: rms([r[key] for r in chosen]) for key in ("sd_of_midmeans_percent", "sd_of_medians_percent")}
    out["cases"] = sorted(rows, key=lambda r: -r["sd_of_midmeans_percent"])
    for label, s in out["sets"].items():
        if s["cases"]:
            print(f"{label}: {s['cases']} cases, equal runs differ by {s['sd_of_midmeans_percent']:.2f} % in midmeans, "
                  f"{s['sd_of_medians_percent']:.2f} % in medians")
    for row in out["cases"]:
        for label in ("near", "far"):
            if label in row:
                s = row[label]
                print(f"{label}: {s['runs']} runs, {s['us']:.0f} us, cores {s['cores_us']:.2f}, handover {s['handover_us']:.2f}, "
                      f"memory {s['memory_us']:.0f}, apart by {s['sd_of_us_over_cores_percent']:.1f} %: {row['case']}")
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(out, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
