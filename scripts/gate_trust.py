#!/usr/bin/env python3
"""Measures how far `attnbench gate` can be trusted: gates between equal kernels, which must not fail, and
gates of kernels that take a known share longer, which must.

    scripts/gate_trust.py --device cpu --gates 10
    scripts/gate_trust.py --device cuda --gates 60 --slow 5 --slow-gates 40 --rounds 10    # 60 equal ones, 40 slower by 5 %
    scripts/gate_trust.py --table results/baselines/*/gate_trust.json    # the rows of results/README.md

The kernels are those of attnbench_faulty (tests/faults/slow.h). One round makes a baseline of slow_0_percent,
gates slow_0_percent against it, and each slower kernel; the gates are spread over the rounds. Results are verified in
the first round, later ones only take times, in baseline and gate alike. With --turns there is no stored baseline: both
kernels run in turns (gate --against-kernel). The machine should have nothing else to do."""
import argparse
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command, log):
    started = time.monotonic()
    with open(log, "ab") as out:
        out.write((" ".join(command) + "\n").encode())
        out.flush()
        code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT).returncode
    return code, time.monotonic() - started


def wilson(hits, n):
    """95 % interval of a share (E. B. Wilson, 1927)."""
    if n == 0:
        return [0.0, 1.0]
    z, p = 1.959964, hits / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [max(0.0, middle - half), min(1.0, middle + half)]


def new_tally(percent):
    return {"slower_by_percent": percent, "gates": 0, "exit_codes": {}, "cases": 0, "verdicts": {}, "log_ratio_sum": 0.0,
            "log_ratio_squares": 0.0, "log_median_ratio_sum": 0.0, "log_median_ratio_squares": 0.0, "ratios": 0, "seconds": 0.0}


def count(tally, code, seconds, compare_file):
    tally["gates"] += 1
    tally["exit_codes"][str(code)] = tally["exit_codes"].get(str(code), 0) + 1
    tally["seconds"] += seconds
    if code not in (0, 3, 4):
        return
    with open(compare_file) as f:
        rows = json.load(f)["rows"]
    for row in rows:
        tally["cases"] += 1
        tally["verdicts"][row["verdict"]] = tally["verdicts"].get(row["verdict"], 0) + 1
        if row["ratio"]:
            tally["ratios"] += 1
            for key, ratio in (("log_ratio", row["ratio"]), ("log_median_ratio", row["new_us"] / row["base_us"])):
                tally[key + "_sum"] += math.log(ratio)
                tally[key + "_squares"] += math.log(ratio) ** 2


def summary(tally):
    n, failed = tally["gates"], tally["exit_codes"].get("3", 0)
    cases, slower = tally["cases"], tally["verdicts"].get("slower", 0)
    out = dict(tally)
    ratios = out.pop("ratios")
    moments = {key: (out.pop(key + "_sum"), out.pop(key + "_squares")) for key in ("log_ratio", "log_median_ratio")}
    out["seconds_per_gate"] = out.pop("seconds") / max(1, n)
    out["called_slower"] = failed
    out["called_slower_share"] = failed / max(1, n)
    out["called_slower_95"] = wilson(failed, n)
    out["inconclusive_share"] = tally["exit_codes"].get("4", 0) / max(1, n)
    out["cases_called_slower_share"] = slower / max(1, cases)
    out["mean_ratio"] = math.exp(moments["log_ratio"][0] / ratios) if ratios else None
    # How far the ratios of cases lie apart: as compared, and of the medians of microseconds.
    for key, (total, squares) in moments.items():
        spread = math.sqrt(max(0.0, squares - total * total / ratios) / (ratios - 1)) if ratios > 1 else None
        out["sd_of_" + key] = spread
    return out


def table(files):
    print("| device | sweep | slower by | gates | called slower | 95 % | inconclusive | of cases | mean ratio | s per gate | against |")
    print("|---|---|--:|--:|--:|---|--:|--:|--:|--:|---|")
    for path in files:
        data = json.loads(pathlib.Path(path).read_text())
        for t in data["tallies"]:
            lo, hi = t["called_slower_95"]
            ratio = "-" if t["mean_ratio"] is None else f"{t['mean_ratio']:.4f}"
            print(f"| {data['device']['model']} | {data['config']} | {t['slower_by_percent']} % | {t['gates']} "
                  f"| {100 * t['called_slower_share']:.1f} % | {100 * lo:.1f} to {100 * hi:.1f} % "
                  f"| {100 * t['inconclusive_share']:.1f} % | {100 * t['cases_called_slower_share']:.1f} % | {ratio} "
                  f"| {t['seconds_per_gate']:.1f} | {data['mode']}, {data['min_effect_percent']:g} % |")


def results(args, program, context, calibration, tallies, rounds):
    return {
        "made_by": "scripts/gate_trust.py " + " ".join(a if a != program else "attnbench_faulty" for a in sys.argv[1:]),
        "version": context["version"], "revision": context["revision"], "device": context["device"],
        "host_cpus": os.cpu_count(), "system": platform.system(), "config": " ".join([args.config] + ["--set " + c for c in args.set]),
        "mode": "turns" if args.turns else "stored baseline", "min_effect_percent": args.min_effect,
        "rounds": rounds, "runs_of_a_baseline": args.runs, "reruns": args.reruns, "max_samples": args.max_samples, "calibration": calibration,
        "tallies": [summary(t) for t in tallies.values()],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="as of attnbench run (default cpu)")
    parser.add_argument("--gates", type=int, default=10, help="gates between equal kernels (default 10)")
    parser.add_argument("--slow-gates", type=int, default=None, help="gates of each slow-down (default: as --gates)")
    parser.add_argument("--rounds", type=int, default=None, help="baselines made (default: a quarter of --slow-gates)")
    parser.add_argument("--slow", default="2,3,5,10", help="slow-downs in percent (default 2,3,5,10)")
    parser.add_argument("--config", default="configs/gate.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of attnbench gate: smaller cases, say")
    parser.add_argument("--program", default=None, help="attnbench_faulty (default: the newest under build/)")
    parser.add_argument("--pairs", type=int, default=0, help="pairs of runs to calibrate with first (default 0: no calibration)")
    parser.add_argument("--runs", type=int, default=None, help="runs of a baseline (default: as of attnbench gate)")
    parser.add_argument("--reruns", type=int, default=None, help="default: as of attnbench gate")
    parser.add_argument("--max-samples", type=int, default=60)
    parser.add_argument("--min-effect", type=float, default=2.0)
    parser.add_argument("--turns", action="store_true", help="both kernels in turns instead of a stored baseline")
    parser.add_argument("--budget", type=float, default=0, help="seconds after which no further round is begun")
    parser.add_argument("--out", default=None, help="results file (default: print only)")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="print Markdown rows of such files, run nothing")
    args = parser.parse_args()
    if args.table:
        table(args.table)
        return 0
    if args.slow_gates is None:
        args.slow_gates = args.gates
    if args.slow_gates < 1 or args.gates < 1:
        parser.error("--gates and --slow-gates: 1 or more")
    if args.rounds is None:
        args.rounds = max(1, args.slow_gates // 4)
    program = args.program
    if program is None:
        found = sorted(ROOT.glob("build/*/tests/faults/attnbench_faulty"), key=lambda p: p.stat().st_mtime)
        if not found:
            parser.error("build the target attnbench_faulty first, or name it with --program")
        program = str(found[-1])

    percents = [0] + [int(p) for p in args.slow.split(",") if p]
    with tempfile.TemporaryDirectory(prefix="gate_trust.") as scratch:
        scratch = pathlib.Path(scratch)
        log, baseline = scratch / "log.txt", scratch / "baseline.json"
        common = [program, "gate", args.config, "--device", args.device, "--max-samples", str(args.max_samples),
                  "--no-ceilings", "--quiet", "--out", str(scratch / "runs")]
        for change in args.set:
            common += ["--set", change]
        judging = ["--min-effect", str(args.min_effect)]
        if args.reruns is not None:
            judging += ["--reruns", str(args.reruns)]
        making = ["--update-baseline"] + (["--runs", str(args.runs)] if args.runs else [])

        def must(command):
            code, _ = run(command, log)
            if code != 0:
                sys.stderr.write(log.read_text(errors="replace")[-4000:])
                sys.exit(f"gate_trust: exit code {code} of: {' '.join(command)}")

        noise = ["--noise", str(scratch / "noise.json")] if args.pairs > 0 else []
        if args.pairs > 0:
            must(common + ["--kernel", "slow_0_percent", "--calibrate", "--pairs", str(args.pairs)] + noise)
        tallies = {p: new_tally(p) for p in percents}
        begin, context = time.monotonic(), None
        for turn in range(args.rounds):
            if args.budget and time.monotonic() - begin > args.budget:
                print(f"gate_trust: {args.budget} s are spent after {turn} rounds", file=sys.stderr)
                break
            unchecked = [] if turn == 0 else ["--check", "off"]
            if not args.turns:
                must(common + unchecked + ["--kernel", "slow_0_percent", "--baseline", str(baseline)] + making)
            # So many of each that their number is reached in the last round; the kinds in turns.
            share = {p: n * (turn + 1) // args.rounds - n * turn // args.rounds
                     for p, n in ((p, args.slow_gates if p else args.gates) for p in percents)}
            for p in [p for i in range(max(share.values())) for p in percents if i < share[p]]:
                against = ["--against-kernel", "slow_0_percent"] if args.turns else ["--baseline", str(baseline),
                                                                                   "--match", "case"]
                if args.turns and p == 0:
                    against = ["--against", program]
                code, seconds = run(common + unchecked + judging + noise + against + ["--kernel", f"slow_{p}_percent"], log)
                if code not in (0, 3, 4):
                    sys.stderr.write(log.read_text(errors="replace")[-4000:])
                    sys.exit(f"gate_trust: a gate of slow_{p}_percent ended with {code}")
                count(tallies[p], code, seconds, scratch / "runs" / "compare.json")
            if context is None:
                newest = max((scratch / "runs").glob("*-new/results.json"), key=lambda f: f.stat().st_mtime)
                context = json.loads(newest.read_text())["context"]["attnbench"]
                noise_text = json.loads((scratch / "noise.json").read_text()) if args.pairs > 0 else None
            # After each round, so that what an end cuts off leaves the rounds before it.
            text = json.dumps(results(args, program, context, noise_text, tallies, turn + 1), indent=1) + "\n"
            if args.out:
                pathlib.Path(args.out).parent.mkdir(parents=True, exist_ok=True)
                pathlib.Path(args.out).write_text(text)
            done = ", ".join(f"{p} %: {tallies[p]['exit_codes'].get('3', 0)} of {tallies[p]['gates']}" for p in percents)
            spent = time.monotonic() - begin
            left = spent / (turn + 1) * (args.rounds - turn - 1)
            print(f"round {turn + 1} of {args.rounds}, {spent:.0f} s, {left:.0f} s to go: called slower {done}",
                  file=sys.stderr, flush=True)

    if args.out:
        table([args.out])
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            f.write(text)
            f.flush()
            table([f.name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
