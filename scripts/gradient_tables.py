#!/usr/bin/env python3
"""Tables of the op attention_backward, from all results files of results/baselines that have their names: what the
checks see (sensitivity_backward*.json) and gradients of several kernels (peers_backward*.json). A part of
readme_tables.py. By itself it writes a results file as results/baselines keeps those of peers: without samples,
refused runs and what no table shows.

    ./scripts/gradient_tables.py results/runs/peers_backward/results.json results/baselines/h100-checks/peers_backward.json
"""
import argparse
import json
import pathlib

BASELINES = pathlib.Path(__file__).resolve().parent.parent / "results" / "baselines"
FAULTS = {"scale": "scale", "dq": "dq", "dk": "dk", "dv": "dv", "dropped_keys": "keys", "dropped_queries": "queries"}


def files(stem):
    """Names below results/baselines; a file that is dropped there needs no other entry."""
    return sorted(str(f.relative_to(BASELINES)) for f in BASELINES.glob(f"*/{stem}*.json"))


def device(context):
    return context["attnbench"]["device"]["model"].removeprefix("NVIDIA ").split(" 80GB")[0]


def time_of(t):
    """The median in ms; `!`: other processes took the cores during more than half of the samples."""
    return f"{t['median_us'] / 1000:.3f}{'!' if 2 * t['disturbed'] > t['iterations'] else ''}"


def size(row, fault):
    x = row[fault]["smallest"]
    return "none" if x is None else f"{x:.0f}" if fault.startswith("dropped") else f"{x:.1e}"


def sensitivity(*results):
    """Head, alignment and rows of what the checks see of each kernel in bf16 and fp32, at the longest context of its file."""
    rows = []
    for data in results:
        longest = max(r["context"] for r in data["sensitivity"])
        for r in (r for r in data["sensitivity"] if r["context"] == longest and r["dtype"] != "fp16"):
            rows.append([device(data["context"]), f"`{data['kernel']}`", r["dtype"], r["p_type"], f"{r['context']:,}", f"{r['rows']:,}", f"{r['max_z']:.2f}",
                         *(size(r, fault) for fault in FAULTS)])
    return ["device", "kernel", "type", "P, dS in", "tokens", "rows", "max abs(z)", *FAULTS.values()], "llllr", rows


def peers(*results):
    """Head, alignment and rows of cases: the built-in kernel, then the other one. Refused cases are left out."""
    rows = []
    for data in results:
        cases = {}
        for a in (b["attnbench"] for b in data["benchmarks"]):
            if a["status"] == "skip" or a["id"].endswith("/4q128"):  # on the CPU one batch is enough
                continue
            if a["status"] != "pass":
                raise ValueError(f"{a['id']}/{a['kernel']}: {a['status']}, and the page says that all are right")
            cases.setdefault(a["id"], {})["other" if a["kernel"].startswith("torch") else "own"] = a
        for name, of in cases.items():
            cells = [c for a in (of.get("own"), of.get("other")) for c in ([f"`{a['kernel']}`", f"{a['check']['max_z']:.2f}", time_of(a["time"])] if a else ["", "", ""])]
            rows.append([device(data["context"]), f"`{name.removeprefix('attention_backward/packed/')}`", *cells])
    return ["device", "case", "built in", "max abs(z)", "ms", "PyTorch", "max abs(z)", "ms"], "lllrrlrr", rows


KEPT = {"id": None, "kernel": None, "status": None, "reason": None, "check": ("pass", "method", "max_z", "rows", "rows_total", "numerics"),
        "time": ("median_us", "lo_us", "hi_us", "iterations", "cache", "disturbed"), "tflops": None, "gbs": None}


def small(data):
    """The results file without what no table shows."""
    runs = []
    for a in (b["attnbench"] for b in data["benchmarks"]):
        if a["status"] != "skip":
            runs.append({k: {n: a[k][n] for n in parts if n in a[k]} if parts and a.get(k) else a.get(k) for k, parts in KEPT.items()})
    lines = ",\n".join(json.dumps({"attnbench": run}) for run in runs)
    return f'{{"context": {json.dumps(data["context"])},\n"benchmarks": [\n{lines}\n]}}\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("out")
    args = parser.parse_args()
    pathlib.Path(args.out).write_text(small(json.loads(pathlib.Path(args.results).read_text())))


if __name__ == "__main__":
    main()
