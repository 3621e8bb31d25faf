#!/usr/bin/env python3
"""How far equal runs lie apart, by the midmean of a run's samples (what attnbench compares) and by their median.

    scripts/run_spread.py results/runs/*/results.json          # one file per run of the same sweep
    scripts/run_spread.py baseline.json --out spread.json      # or a baseline, which holds several runs

Standard deviations of the logarithm over the runs, in percent: per case, and over all cases as root mean squares."""
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
    cases, context = {}, None
    for path in args.files:
        data = json.loads(pathlib.Path(path).read_text())
        context = context or data["context"]["attnbench"]
        for entry in data["benchmarks"]:
            own = entry["attnbench"]
            if own["status"] == "pass" and own["time"]:
                cases.setdefault(entry["name"], []).extend(runs_of(own["time"]))
    rows = []
    for name, runs in cases.items():
        if len(runs) < 3:
            continue
        medians = [statistics.median(r) for r in runs]
        rows.append({"case": name, "runs": len(runs), "samples": sum(map(len, runs)), "median_us": statistics.median(medians),
                     "sd_of_midmeans_percent": deviation([midmean(r) for r in runs]), "sd_of_medians_percent": deviation(medians)})
    if not rows:
        sys.exit("run_spread: no case has three runs")
    out = {"made_by": "scripts/run_spread.py", "version": context["version"], "revision": context["revision"],
           "device": context["device"]["model"], "command": context.get("command_line"), "sets": {}}
    for label, chosen in (("all", rows), (f"up to {args.short:g} us", [r for r in rows if r["median_us"] <= args.short])):
        out["sets"][label] = {"cases": len(chosen)} | {
            key: rms([r[key] for r in chosen]) for key in ("sd_of_midmeans_percent", "sd_of_medians_percent")}
    out["cases"] = sorted(rows, key=lambda r: -r["sd_of_midmeans_percent"])
    for label, s in out["sets"].items():
        if s["cases"]:
            print(f"{label}: {s['cases']} cases, equal runs differ by {s['sd_of_midmeans_percent']:.2f} % in midmeans, "
                  f"{s['sd_of_medians_percent']:.2f} % in medians")
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(out, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
