#!/usr/bin/env python3
"""Builds the presets asan (with UBSan) and tsan and runs the tests that need no GPU under them.

    scripts/sanitize_cpu.py                                # both presets, every test
    scripts/sanitize_cpu.py --preset tsan --tests Configs  # a piece: tests whose name matches
    scripts/sanitize_cpu.py --no-run --out results/baselines/cpu/sanitizers.json      # results of all pieces

Each run writes a log to build/<preset>/sanitize. If a test is in several logs, the last one counts. Each
sanitizer is also run on programs with a planted mistake, which it must report, and tsan on one with barriers,
which it must not report. Exit code 1: a test failed or did not run, or a sanitizer reported something or
missed a planted mistake; 2: the script cannot run here. Needs CMake 3.24 or newer, GCC and, for tsan, clang
with libomp; Python 3 and its standard library only."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRESETS = ["asan", "tsan"]
TEST = re.compile(r"^ *\d+/\d+ Test +#\d+: (.*?) \.*(?:   |\*\*\*)(Passed|Skipped|Failed|Timeout|Not Run|Exception: \w+|\w[\w ]*?) +([\d.]+) sec", re.M)
REPORT = re.compile(r"^.*(?:ERROR: (?:Address|Leak)Sanitizer|WARNING: ThreadSanitizer|: runtime error: ).*$", re.M)
# Programs that each sanitizer must report (True) or must not report (False).
PLANTED = {
    "asan": {"reads past an allocation": ("int* p = new int[n]; p[0] = 1; volatile int x = p[n]; delete[] p; return x & 0;", True),
             "loses an allocation": ("int* volatile p = new int[n]; p = nullptr; return 0;", True),
             "overflows an int": ("volatile int x = 2147483640; x = x + n * 100; return x & 0;", True)},
    "tsan": {"races in a parallel region": ("int x = 0;\n#pragma omp parallel num_threads(4)\n++x;\nreturn x & 0;", True),
             "waits at a barrier": ("static int a[999];\n#pragma omp parallel num_threads(4)\n{\n#pragma omp for\n"
                                    "for (int i = 0; i < 999; ++i) a[i] = i;\n#pragma omp for\n"
                                    "for (int i = 0; i < 999; ++i) a[998 - i] += n;\n}\nreturn a[5] & 0;", False)},
}


def fail(text):
    print(f"sanitize_cpu: {text}", file=sys.stderr)
    sys.exit(2)


def output_of(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, text=True, errors="replace", **more)


def preset_fields(preset):
    presets = json.loads((ROOT / "CMakePresets.json").read_text())
    environment = next(p for p in presets["testPresets"] if p["name"] == preset)["environment"]
    cache = (ROOT / "build" / preset / "CMakeCache.txt").read_text()
    entry = lambda name: re.search(rf"^{name}:\w+=(.*)$", cache, re.M).group(1)
    compiler = entry("CMAKE_CXX_COMPILER")
    return compiler, entry("ATTNBENCH_SANITIZE"), {**os.environ, **environment}


def plant(preset, scratch):
    """Runs the preset's sanitizers on the programs of PLANTED."""
    compiler, sanitize, environment = preset_fields(preset)
    scratch.mkdir(parents=True, exist_ok=True)
    seen = []
    for name, (code, wrong) in PLANTED[preset].items():
        source, program = scratch / "planted.cpp", scratch / "planted"
        source.write_text(f"int main(int n, char**) {{\n{code}\n}}\n")
        build = output_of([compiler, "-g", "-O1", "-fopenmp", f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", str(source),
                           "-o", str(program)])
        if build.returncode != 0:
            fail(f"{compiler} cannot build a program with -fsanitize={sanitize}:\n{build.stdout}")
        run = output_of([str(program)], env=environment)
        objects = run.returncode != 0 and bool(REPORT.search(run.stdout))
        seen.append({"program": name, "wrong": wrong, "objected": objects})
    return seen


def run_piece(preset, args):
    for step in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset, "-j", str(args.jobs)]):
        if subprocess.run(step, cwd=ROOT).returncode != 0:
            fail(f"{' '.join(step)} failed")
    logs = ROOT / "build" / preset / "sanitize"
    logs.mkdir(parents=True, exist_ok=True)
    command = ["ctest", "--preset", preset, "-LE", "gpu", "-j", str(args.jobs)] + (["-R", args.tests] if args.tests else [])
    version = (ROOT / "build" / preset / "generated" / "attnbench_version.h").read_text()
    revision = re.search(r'REVISION "(.*)"', version).group(1)
    with open(logs / f"{time.time():.0f}.log", "w") as log:
        log.write(f"# revision {revision}\n")
        log.flush()
        subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)


def name_of(shown):
    return shown.split("  # ")[0].strip()


def reason_of(preset, name):
    """The reason that a skipped test prints."""
    said = output_of(["ctest", "--preset", preset, "-V", "-R", f"^{re.escape(name)}"]).stdout
    lines = re.findall(r"^\d+: (.*)$", said, re.M)
    at = next((i for i, line in enumerate(lines) if line.rstrip().endswith(": Skipped")), None)
    return lines[at + 1].strip() if at is not None and at + 1 < len(lines) else next(reversed(lines), "").strip()


def summary(preset):
    compiler, sanitize, _ = preset_fields(preset)
    folder = ROOT / "build" / preset / "sanitize"
    tests = {}
    reports, revisions = [], []
    for log in sorted(folder.glob("*.log")):
        text = log.read_text(errors="replace")
        revision = re.match(r"# revision (\S+)", text)
        revisions += [revision.group(1)] if revision and revision.group(1) not in revisions else []
        tests.update({name_of(n): (verdict, float(s)) for n, verdict, s in TEST.findall(text)})
        reports += [line.strip() for line in REPORT.findall(text)]
    listed = output_of(["ctest", "--preset", preset, "-LE", "gpu", "-N"]).stdout
    names = [name_of(n) for n in re.findall(r"^ *Test +#\d+: (.*)$", listed, re.M)]
    verdicts = {n: tests.get(n, ("not run", 0))[0] for n in names}
    return {
        "preset": preset, "sanitizers": sanitize, "revisions": revisions,
        "compiler": output_of([compiler, "--version"]).stdout.splitlines()[0],
        "command": f"ctest --preset {preset} -LE gpu", "tests": len(names),
        "passed": sum(v == "Passed" for v in verdicts.values()), "test_seconds": round(sum(tests.get(n, ("", 0))[1] for n in names)),
        "skipped": [{"test": n, "reason": reason_of(preset, n)} for n, v in verdicts.items() if v == "Skipped"],
        "failed": [{"test": n, "how": v} for n, v in verdicts.items() if v not in ("Passed", "Skipped")],
        "reports": sorted(set(reports)), "planted": plant(preset, folder / "planted"),
    }


def blind(piece):
    return [p["program"] for p in piece["planted"] if p["wrong"] != p["objected"]]


def table(data):
    rows = ["| preset | sanitizers | compiler | tests | passed | skipped | failed or not run | reports | planted |", "|---|---|---|--:|--:|--:|--:|--:|---|"]
    for p in data["presets"]:
        planted = "all seen" if not blind(p) else "NOT AS IT MUST: " + ", ".join(blind(p))
        rows.append(f"| {p['preset']} | {p['sanitizers']} | {p['compiler']} | {p['tests']} | {p['passed']} | {len(p['skipped'])} | "
                    f"{len(p['failed'])} | {len(p['reports'])} | {planted} |")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", action="append", choices=PRESETS, help="only this one; may be repeated")
    parser.add_argument("--tests", metavar="REGEX", help="only tests whose name matches, as of ctest -R")
    parser.add_argument("--jobs", type=int, default=2, help="compilers, then tests, at a time (default 2)")
    parser.add_argument("--no-run", action="store_true", help="run no test: what the logs of earlier runs say")
    parser.add_argument("--out", type=pathlib.Path, help="results file (default: print only)")
    args = parser.parse_args()
    pieces = []
    for preset in args.preset or PRESETS:
        if not args.no_run:
            run_piece(preset, args)
        elif not (ROOT / "build" / preset / "CMakeCache.txt").exists():
            fail(f"build/{preset} is not there: run without --no-run first")
        pieces.append(summary(preset))
    data = {"made_by": "scripts/sanitize_cpu.py", "presets": pieces}
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(data, indent=1) + "\n")
    print(table(data))
    for p in pieces:
        for t in p["failed"]:
            print(f"{p['preset']}: {t['test']}: {t['how']}")
        for line in p["reports"]:
            print(f"{p['preset']}: {line}")
    return 1 if any(p["failed"] or p["reports"] or blind(p) for p in pieces) else 0


if __name__ == "__main__":
    sys.exit(main())
