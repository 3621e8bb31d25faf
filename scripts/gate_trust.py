#!/usr/bin/env python3
"""Measures how often `attnbench gate` is wrong. Gates between equal kernels must not fail; gates of kernels
that are slower by a known share must fail.

    scripts/gate_trust.py --device cpu --gates 10
    scripts/gate_trust.py --device cuda --gates 60 --slow 5 --slow-gates 40 --rounds 10    # 60 equal ones, 40 slower by 5 %
    scripts/gate_trust.py --turns --load 1,2,4 --gates 20 --slow 5   # beside 1, 2 and 4 busy processes: 20 equal, slower, faster each

The kernels are those of attnbench_faulty (tests/faults/slow.h). Each round makes a baseline of
slow_0_percent, and gates slow_0_percent and each slower kernel against it. The gates are spread over the
rounds. Results are verified in the first round; later rounds only take times, for the baseline and the gates.
With --turns there is no stored baseline: both kernels run in turns (gate --against-kernel). The machine
should have nothing else to do.

With --load the script counts verdicts that name the wrong direction. It gates equal kernels, a slower kernel,
and a faster one (the slower one is then the baseline), while other processes keep one core busy each. The
script starts and ends these processes. Every other round makes its baselines without them. Only times are
taken; results are not verified."""
import argparse
import contextlib
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
    # Standard deviations of the cases' log ratios: of the ratios that the gate compares, and of medians.
    for key, (total, squares) in moments.items():
        spread = math.sqrt(max(0.0, squares - total * total / ratios) / (ratios - 1)) if ratios > 1 else None
        out["sd_of_" + key] = spread
    return out


def together(first, second):
    """The tally of two sets of gates, as far as table() shows it."""
    out = {key: first[key] + second[key] for key in ("gates", "cases", "called_slower")}
    out["slower_by_percent"] = first["slower_by_percent"]
    out["called_slower_share"] = out["called_slower"] / out["gates"]
    out["called_slower_95"] = wilson(out["called_slower"], out["gates"])
    for key, by in (("inconclusive_share", "gates"), ("seconds_per_gate", "gates"), ("cases_called_slower_share", "cases")):
        out[key] = (first[key] * first[by] + second[key] * second[by]) / out[by]
    logs = [(t["cases"], math.log(t["mean_ratio"])) for t in (first, second) if t["mean_ratio"] is not None]
    out["mean_ratio"] = math.exp(sum(n * x for n, x in logs) / sum(n for n, _ in logs)) if logs else None
    return out


def table(files):
    """Markdown of results made without --load. Gates of several files that differ in nothing shown are added up."""
    lines = ["| device | sweep | slower by | gates | called slower | 95 % | inconclusive | of cases | mean ratio | s per gate | against |",
             "|---|---|--:|--:|--:|---|--:|--:|--:|--:|---|"]
    alike = {}
    for data in files:
        side = (data["device"]["model"], data["config"], f"{data['mode']}, {data['min_effect_percent']:g} %")
        tallies = alike.setdefault(side, {})
        for t in data["tallies"]:
            percent = t["slower_by_percent"]
            tallies[percent] = together(tallies[percent], t) if percent in tallies else t
    for (model, config, against), tallies in alike.items():
        for percent, t in sorted(tallies.items()):
            lo, hi = t["called_slower_95"]
            ratio = "-" if t["mean_ratio"] is None else f"{t['mean_ratio']:.4f}"
            lines.append(f"| {model} | {config} | {percent} % | {t['gates']} "
                         f"| {100 * t['called_slower_share']:.1f} % | {100 * lo:.1f} to {100 * hi:.1f} % "
                         f"| {100 * t['inconclusive_share']:.1f} % | {100 * t['cases_called_slower_share']:.1f} % | {ratio} "
                         f"| {t['seconds_per_gate']:.1f} | {against} |")
    return "\n".join(lines)


KINDS = {"equal": "same", "slower": "slower", "faster": "faster"}  # right verdict of each kind of gate
SPIN = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for i in range(10**6): pass"


@contextlib.contextmanager
def busy(processes):
    """Runs processes that keep one core busy each. They end with this process, however it ends."""
    started = []
    try:
        for _ in range(processes):
            started.append(subprocess.Popen([sys.executable, "-c", SPIN, str(os.getpid())]))
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def new_load_tally(load, kind):
    return {"busy_processes": load, "kind": kind, "gates": 0, "right": 0, "inconclusive": 0, "wrong": 0, "cases": 0,
            "cases_right": 0, "cases_inconclusive": 0, "cases_wrong": 0, "called_slower": 0, "seconds_per_gate": 0.0}


def count_directions(tally, code, seconds, compare_file):
    """Counts a gate. A case is wrong if its verdict is neither right nor inconclusive. A gate is wrong if one case is
    wrong, and right if all are right."""
    with open(compare_file) as f:
        verdicts = [row["verdict"] for row in json.load(f)["rows"]]
    right, open_ = verdicts.count(KINDS[tally["kind"]]), verdicts.count("inconclusive")
    wrong = len(verdicts) - right - open_
    for key, n in (("right", right), ("inconclusive", open_), ("wrong", wrong)):
        tally["cases_" + key] += n
    tally["cases"] += len(verdicts)
    tally["called_slower"] += code == 3
    tally["wrong" if wrong else "inconclusive" if open_ else "right"] += 1
    tally["seconds_per_gate"] = (tally["seconds_per_gate"] * tally["gates"] + seconds) / (tally["gates"] + 1)
    tally["gates"] += 1


def load_table(files):
    """Markdown of results made with --load: for each kind of gate, the cases that are wrong, inconclusive and right, and how
    many gates of slower kernels said so."""
    lines = ["| device | sweep | busy processes | slower by | gates | equal | slower | said so | faster | s per gate | against |",
             "|---|---|--:|--:|--:|---|---|--:|---|--:|---|"]
    for data in files:
        for load in dict.fromkeys(t["busy_processes"] for t in data["loads"]):
            of = {t["kind"]: t for t in data["loads"] if t["busy_processes"] == load}
            cells = {kind: f"{t['cases_wrong']} / {t['cases_inconclusive']} / {t['cases_right']}" for kind, t in of.items()}
            gates = sum(t["gates"] for t in of.values())
            seconds = sum(t["seconds_per_gate"] * t["gates"] for t in of.values()) / max(1, gates)
            said = of["slower"].get("called_slower")
            lines.append(f"| {data['device']['model']} | {data['config']} | {load} | {data['slower_by_percent']} % | {gates} | {cells['equal']} "
                         f"| {cells['slower']} | {'-' if said is None else said} | {cells['faster']} | {seconds:.0f} | {data['mode']}, {data['min_effect_percent']:g} % |")
    return "\n".join(lines)


def about(args, gates, rounds):
    context = gates.context()
    return {
        "made_by": "scripts/gate_trust.py " + " ".join(a if a != gates.program else "attnbench_faulty" for a in sys.argv[1:]),
        "version": context["version"], "revision": context["revision"], "device": context["device"],
        "host_cpus": os.cpu_count(), "system": platform.system(), "config": " ".join([args.config] + ["--set " + c for c in args.set]),
        "mode": "turns" if args.turns else "stored baseline", "min_effect_percent": args.min_effect,
        "rounds": rounds, "runs_of_a_baseline": args.runs, "reruns": args.reruns, "max_samples": args.max_samples,
    }


class Gates:
    """The commands of all gates: attnbench_faulty on one sweep."""

    def __init__(self, args, program, scratch):
        self.program, self.turns, self.scratch, self.log = program, args.turns, scratch, scratch / "log.txt"
        self.common = [program, "gate", args.config, "--device", args.device, "--max-samples", str(args.max_samples),
                       "--no-ceilings", "--quiet", "--out", str(scratch / "runs")]
        for change in args.set:
            self.common += ["--set", change]
        self.judging = ["--min-effect", str(args.min_effect)]
        if args.reruns is not None:
            self.judging += ["--reruns", str(args.reruns)]
        self.making = ["--update-baseline"] + (["--runs", str(args.runs)] if args.runs else [])
        self.noise = ["--noise", str(scratch / "noise.json")] if args.pairs > 0 else []
        if args.pairs > 0:
            self.must(["--kernel", kernel(0), "--calibrate", "--pairs", str(args.pairs)] + self.noise)

    def fail(self, code, command):
        sys.stderr.write(self.log.read_text(errors="replace")[-4000:])
        sys.exit(f"gate_trust: exit code {code} of: {' '.join(command)}")

    def must(self, arguments):
        code, _ = run(self.common + arguments, self.log)
        if code != 0:
            self.fail(code, self.common + arguments)

    def baseline_of(self, percent):
        return ["--baseline", str(self.scratch / f"baseline_{percent}.json")]

    def make_baseline(self, percent, unchecked):
        self.must(unchecked + ["--kernel", kernel(percent)] + self.baseline_of(percent) + self.making)

    def gate(self, base, new, unchecked):
        """Exit code and seconds of a gate of one kernel against another, both given by their slow-down in percent."""
        against = self.baseline_of(base) + ["--match", "case"]
        if self.turns:
            against = ["--against-kernel", kernel(base)] if base != new else ["--against", self.program]
        command = self.common + unchecked + self.judging + self.noise + against + ["--kernel", kernel(new)]
        code, seconds = run(command, self.log)
        if code not in (0, 3, 4):
            self.fail(code, command)
        return code, seconds

    def compare_file(self):
        return self.scratch / "runs" / "compare.json"

    def context(self):
        newest = max((self.scratch / "runs").glob("*-new/results.json"), key=lambda f: f.stat().st_mtime)
        return json.loads(newest.read_text())["context"]["attnbench"]


def kernel(percent):
    return f"slow_{percent}_percent"


def share(n, turn, rounds):
    """How many of n belong to this round; over all rounds they sum to n."""
    return n * (turn + 1) // rounds - n * turn // rounds


def write(out, results_of_run):
    text = json.dumps(results_of_run, indent=1) + "\n"
    if out:
        pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(out).write_text(text)
    return text


def out_of_time(args, begin, turn):
    if not args.budget or time.monotonic() - begin <= args.budget:
        return False
    print(f"gate_trust: {args.budget} s are spent after {turn} rounds", file=sys.stderr)
    return True


def say(args, begin, turn, what):
    spent = time.monotonic() - begin
    left = spent / (turn + 1) * (args.rounds - turn - 1)
    print(f"round {turn + 1} of {args.rounds}, {spent:.0f} s, {left:.0f} s to go: {what}", file=sys.stderr, flush=True)


def measure_rates(args, gates, percents):
    """Measures how often a gate says slower, for kernels that are slower by each of `percents`."""
    tallies = {p: new_tally(p) for p in percents}
    begin, noise, text = time.monotonic(), None, ""
    if args.pairs > 0:
        noise = json.loads((gates.scratch / "noise.json").read_text())
    for turn in range(args.rounds):
        if out_of_time(args, begin, turn):
            break
        unchecked = [] if turn == 0 else ["--check", "off"]
        if not args.turns:
            gates.make_baseline(0, unchecked)
        # Gates of the different kernels take turns.
        now = {p: share(args.slow_gates if p else args.gates, turn, args.rounds) for p in percents}
        for p in [p for i in range(max(now.values())) for p in percents if i < now[p]]:
            code, seconds = gates.gate(0, p, unchecked)
            count(tallies[p], code, seconds, gates.compare_file())
        # Written after each round, so that an interrupted run keeps the rounds before.
        out = about(args, gates, turn + 1)
        out.update({"calibration": noise, "tallies": [summary(t) for t in tallies.values()]})
        text = write(args.out, out)
        say(args, begin, turn, "called slower " +
            ", ".join(f"{p} %: {tallies[p]['exit_codes'].get('3', 0)} of {tallies[p]['gates']}" for p in percents))
    return text


def measure_directions(args, gates, percent):
    """Measures how often a verdict names the wrong direction, for each number of busy processes."""
    loads = [int(n) for n in args.load.split(",")]
    pairs = {"equal": (0, 0), "slower": (0, percent), "faster": (percent, 0)}
    tallies = {(load, kind): new_load_tally(load, kind) for load in loads for kind in KINDS}
    unchecked, begin, text = ["--check", "off"], time.monotonic(), ""
    for turn in range(args.rounds):
        if out_of_time(args, begin, turn):
            break
        for load in loads:
            if not args.turns:
                with busy(load if turn % 2 == 0 else 0):
                    gates.make_baseline(0, unchecked)
                    gates.make_baseline(percent, unchecked)
            with busy(load):
                for kind in list(KINDS) * share(args.gates, turn, args.rounds):
                    code, seconds = gates.gate(*pairs[kind], unchecked)
                    count_directions(tallies[load, kind], code, seconds, gates.compare_file())
        out = about(args, gates, turn + 1)
        out.update({"slower_by_percent": percent, "loads": list(tallies.values())})
        text = write(args.out, out)
        say(args, begin, turn, ", ".join(f"{load} busy: {sum(tallies[load, k]['wrong'] for k in KINDS)} wrong of "
                                         f"{sum(tallies[load, k]['gates'] for k in KINDS)}" for load in loads))
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="as of attnbench run (default cpu)")
    parser.add_argument("--gates", type=int, default=10, help="gates between equal kernels (default 10)")
    parser.add_argument("--slow-gates", type=int, default=None, help="gates of each slow-down (default: as --gates)")
    parser.add_argument("--load", metavar="N,N", help="gates of each kind beside so many busy processes; --slow names one slow-down")
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
    args = parser.parse_args()
    if args.slow_gates is None:
        args.slow_gates = args.gates
    if args.load and (args.device != "cpu" or not all(n.isdigit() for n in args.load.split(",")) or not args.slow.isdigit()):
        parser.error("--load takes numbers of busy processes as 0,1,2, the device cpu, and one slow-down: --slow 250")
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
        gates = Gates(args, program, pathlib.Path(scratch))
        text = measure_directions(args, gates, percents[1]) if args.load else measure_rates(args, gates, percents)
    print((load_table if args.load else table)([json.loads(text)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
