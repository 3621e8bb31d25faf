#!/usr/bin/env python3
"""Runs every GPU kernel under the tools of compute-sanitizer, on the small cases of configs/sanitize.yaml.

    scripts/sanitize_gpu.py                                  # all tools, all kernels of the GPU
    scripts/sanitize_gpu.py --tool racecheck --kernel sm90_decode --filter paged
    scripts/sanitize_gpu.py --jobs 8 --shards 4 --out results/baselines/<gpu>/sanitizer.json

Each tool is first run on a kernel with a planted mistake (tests/faults/unclean_cuda.cu); a tool that does not
report it is an error itself. Exit code 1: a tool reported something, or a case was not right; 2: the script
cannot run here. Needs compute-sanitizer (of the CUDA Toolkit) and attnbench_faulty, built with CUDA; Python 3
and its standard library only."""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Each tool and the kernel of attnbench_faulty that it must report.
PLANTED = {"memcheck": "reads_past_the_end", "racecheck": "races", "initcheck": "reads_unset",
           "synccheck": "diverging_barrier"}
PLANTED_CASE = "{batch: q5s9, heads: 2/1, head_dim: 16}"
SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards?)\b(.*)$", re.M)
SITES_PRINTED = 12
NOTHING_RAN = 6  # an exit code of attnbench
# Reports that are mistakes of a tool, each with the reason.
KNOWN = json.loads((ROOT / "scripts" / "sanitize_gpu_known.json").read_text())


def fail(text):
    print(f"sanitize_gpu: {text}", file=sys.stderr)
    sys.exit(2)


def find_sanitizer():
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    return found or fail("no compute-sanitizer in PATH or /usr/local/cuda/bin; it is part of the CUDA Toolkit")


def find_program():
    found = sorted(ROOT.glob("build/*/tests/faults/attnbench_faulty"), key=lambda p: p.stat().st_mtime)
    return str(found[-1]) if found else fail("build the target attnbench_faulty first, or name it with --program")


def gpu_kernels(program):
    """Names of the GPU kernels, in the order of the registry, without the faulty ones and the example."""
    text = subprocess.run([program, "kernels"], stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
    rows = re.findall(r"^(\w+) \(\w+, cuda[^)]*\): (.*)$", text, re.M)
    names = [name for name, summary in rows if not re.match(r"fault: |right, |a start for ", summary)]
    return list(dict.fromkeys(names))


def reports_of(text):
    """The tool's reports as (kind, places), with places as kernel_folder/file:line."""
    reports = []
    for line in text.splitlines():
        line = re.sub(r"^=+ ?", "", line).strip()
        if re.match(r"(Error|Warning|Invalid|Uninitialized|Barrier error|Program hit|Potential)", line):
            kind = re.sub(r" access at .*", "", re.sub(r"0x[0-9a-f]+|\(\d+,\d+,\d+\)", "*", line))
            reports.append((kind[:120], []))
        place = re.search(r" in (\S+\.(?:cuh?|h):\d+)", line)
        if reports and place and len(reports[-1][1]) < 4:
            reports[-1][1].append("/".join(pathlib.PurePath(place.group(1)).parts[-2:]))
    return reports


def findings_of(reports):
    """The reports, those that say the same together, most frequent first."""
    counts = collections.Counter((kind, " ".join(sorted(set(places)))) for kind, places in reports)
    return [{"what": kind, "at": places, "times": n} for (kind, places), n in counts.most_common()]


def explained(entry):
    """How many of a run's reports KNOWN explains."""
    count = 0
    for finding in entry["findings"]:
        files = {place.rsplit(":", 1)[0].rsplit("/", 1)[-1] for place in finding["at"].split()}
        if files and any(entry["tool"] == k["tool"] and entry["kernel"] in k["kernels"] and files <= set(k["files"])
                         for k in KNOWN):
            count += finding["times"]
    return count


def sanitized(args, tool, kernel, cases, out):
    """Runs the program under one tool. `cases` are the arguments that select what to run."""
    command = [args.sanitizer, "--tool", tool, "--print-limit", "200", args.program, "run", *cases, "--device", "cuda",
               "--kernel", kernel, "--in-process", "--no-time", "--quiet", "--out", str(out)]
    # The reference's threads share the cores with those of the other runs.
    env = dict(os.environ, OMP_NUM_THREADS=str(max(1, (os.cpu_count() or 1) // args.jobs)), OMP_WAIT_POLICY="passive")
    begin = time.monotonic()
    limit = min(args.timeout, max(0.1, args.deadline - begin))
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=env, timeout=limit)
        code, text = run.returncode, run.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as e:
        code, text = "timeout", (e.stdout or b"").decode(errors="replace")
    seconds = time.monotonic() - begin
    if args.logs:
        args.logs.mkdir(parents=True, exist_ok=True)
        (args.logs / f"{out.name}-{tool}-{kernel}.log").write_text(text)
    entry = {"tool": tool, "kernel": kernel, "exit_code": code, "seconds": round(seconds, 1)}
    said = SUMMARY.search(text)
    entry["errors"] = int(said.group(1)) if said else None
    if said and said.group(2).strip(" ()"):
        entry["note"] = said.group(2).strip(" ()")
    entry["findings"] = findings_of(reports_of(text))
    count, context = collections.Counter(), None
    try:
        results = json.loads((out / "results.json").read_text())
        count.update(b["attnbench"]["status"] for b in results["benchmarks"])
        context = results["context"]["attnbench"]
    except (OSError, ValueError, KeyError) as e:
        entry["no_results"] = str(e).replace(str(out), "OUT") + "; " + text[-300:]
    entry["cases"] = dict(count)
    return entry, context


def together(shares):
    """One entry of those of a tool's and a kernel's shares. A share in which the kernel takes no case ends with code 6."""
    entry = dict(shares[0])
    codes = [e["exit_code"] for e in shares]
    ran = [code for code in codes if code != NOTHING_RAN]
    entry["exit_code"] = next((code for code in ran if code != 0), 0) if ran else NOTHING_RAN
    entry["seconds"] = round(sum(e["seconds"] for e in shares), 1)
    errors = [e["errors"] for e in shares]
    entry["errors"] = None if None in errors else sum(errors)
    findings, cases = collections.Counter(), collections.Counter()
    for e in shares:
        findings.update({(f["what"], f["at"]): f["times"] for f in e["findings"]})
        cases.update(e["cases"])
        for text in ("note", "no_results"):
            if text in e:
                entry[text] = e[text]
    entry["findings"] = [{"what": what, "at": at, "times": n} for (what, at), n in findings.most_common()]
    entry["cases"] = dict(cases)
    return entry


def bad(entry):
    cases = dict(entry["cases"])
    passed, _ = cases.pop("pass", 0), cases.pop("skip", 0)
    return entry["errors"] is None or entry["errors"] > explained(entry) or passed == 0 or bool(cases) or entry["exit_code"] != 0


def table(data):
    rows = [f"| {data['device']['model']}, compute-sanitizer {data['sanitizer']} | " + " | ".join(data["tools"]) + " |"]
    rows.append("|---|" + "--:|" * len(data["tools"]))
    by_place = {(e["tool"], e["kernel"]): e for e in data["runs"]}
    for kernel in dict.fromkeys(e["kernel"] for e in data["runs"]):
        cells = []
        for tool in data["tools"]:
            e = by_place.get((tool, kernel))
            if e is None:
                cells.append("-")
                continue
            errors = "no verdict" if e["errors"] is None else f"{e['errors']} errors"
            wrong = sum(n for s, n in e["cases"].items() if s not in ("pass", "skip"))
            if explained(e):
                errors += f" ({explained(e)} explained)"
            cells.append(f"{errors}, {e['cases'].get('pass', 0)} cases" + (f", {wrong} wrong" if wrong else ""))
        rows.append(f"| {kernel} | " + " | ".join(cells) + " |")
    planted = [f"{e['errors']} errors" if e["errors"] else "NOT SEEN" for e in data["planted"]]
    rows.append("| planted | " + " | ".join(planted) + " |")
    return "\n".join(rows)


def by_tool(data):
    """A Markdown table with a row for each tool, over all kernels."""
    head = [f"{data['device']['model']}, compute-sanitizer {data['sanitizer']}", "kernels", "cases", "reports", "explained", "not explained", "planted errors seen"]
    rows = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    for tool, planted in zip(data["tools"], data["planted"]):
        runs = [e for e in data["runs"] if e["tool"] == tool]
        reports, known = sum(e["errors"] for e in runs), sum(explained(e) for e in runs)
        cases = sum(e["cases"].get("pass", 0) for e in runs)
        rows.append(f"| {tool} | {len(runs)} | {cases} | {reports} | {known} | {reports - known} | {planted['errors'] or 'NOT SEEN'} |")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", action="append", choices=list(PLANTED), help="only this tool; may be repeated")
    parser.add_argument("--kernel", action="append", help="only this kernel; may be repeated")
    parser.add_argument("--config", default="configs/sanitize.yaml")
    parser.add_argument("--filter", default=None, help="only cases whose id matches, as of attnbench run")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default 1)")
    parser.add_argument("--shards", type=int, default=1, help="runs of each tool and kernel, a share of the cases each")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of one run (default 1800)")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds of all; what is not done then has no verdict")
    parser.add_argument("--program", default=None, help="attnbench_faulty (default: the newest under build/)")
    parser.add_argument("--logs", type=pathlib.Path, default=None, help="folder for what the tools print")
    parser.add_argument("--out", type=pathlib.Path, default=None, help="results file (default: print only)")
    args = parser.parse_args()
    args.deadline = time.monotonic() + args.budget
    args.sanitizer = find_sanitizer()
    args.program = str(pathlib.Path(args.program or find_program()).resolve())
    version = subprocess.run([args.sanitizer, "--version"], stdout=subprocess.PIPE, universal_newlines=True).stdout
    tools = args.tool or list(PLANTED)
    kernels = args.kernel or gpu_kernels(args.program)
    if not kernels:
        fail(f"{args.program} has no kernel for a GPU: build it with CUDA (-DATTNBENCH_CUDA=ON)")
    cases = [args.config] + (["--filter", args.filter] if args.filter else [])
    work = [(tool, PLANTED[tool], ["--case", PLANTED_CASE]) for tool in tools]
    # The longest runs start first.
    shares = [["--shard", f"{i + 1}/{args.shards}"] for i in range(args.shards)] if args.shards > 1 else [[]]
    work += [(tool, kernel, cases + share) for kernel in kernels for tool in sorted(tools, key=lambda t: t != "racecheck")
             for share in shares]
    entries, context = collections.defaultdict(list), None
    with tempfile.TemporaryDirectory(prefix="sanitize_gpu.") as scratch:
        with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
            jobs = {pool.submit(sanitized, args, t, k, c, pathlib.Path(scratch) / f"run{i}"): (t, k)
                    for i, (t, k, c) in enumerate(work)}
            for job in concurrent.futures.as_completed(jobs):
                entry, its_context = job.result()
                context = context or its_context
                entries[jobs[job]].append(entry)
                print(f"{entry['tool']:10} {entry['kernel']:20} {entry['errors']} errors, {entry['cases']}, "
                      f"{entry['seconds']} s", file=sys.stderr)
    if context is None:
        print(json.dumps([e for shares in entries.values() for e in shares], indent=1), file=sys.stderr)
        fail("no run left results; the last lines of each are above")
    entries = {place: together(shares) for place, shares in entries.items()}
    data = {
        "made_by": "scripts/sanitize_gpu.py", "config": args.config, "filter": args.filter,
        "sanitizer": (re.findall(r"[Vv]ersion (\S+)", version) or ["unknown"])[-1],
        "version": context["version"], "revision": context["revision"], "device": context["device"], "tools": tools,
        "runs": [entries[t, k] for k in kernels for t in tools],
        "planted": [entries[t, PLANTED[t]] for t in tools],
    }
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(data, indent=1) + "\n")
    print(table(data))
    dirty = [e for e in data["runs"] if bad(e)]
    for e in dirty:
        print(f"{e['tool']} {e['kernel']}: exit code {e['exit_code']}, {e.get('note', '')} {e.get('no_results', '')}")
        for f in e["findings"][:SITES_PRINTED]:
            print(f"    {f['times']} x {f['what']} at {f['at']}")
    blind = [e for e in data["planted"] if not e["errors"]]
    for e in blind:
        print(f"{e['tool']} does not see {e['kernel']}: its other verdicts say nothing")
    return 1 if dirty or blind else 0


if __name__ == "__main__":
    sys.exit(main())
