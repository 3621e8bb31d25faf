#!/usr/bin/env python3
"""Would a wrong kernel be caught? The script changes a kernel's source in one place at a time, builds
attnbench, and runs sweeps as a user would.

    scripts/mutate.py --count 100 --out mutants.json          # kernels/cpu and what it includes of kernels/common
    scripts/mutate.py --file 'kernels/mine/*' --kernel mine --count 50 --seed 2 --out mine.json    # --list: print the changes, make none

A mutant is one small change of one line: a comparison, an operator or a constant is replaced by its
neighbour; a term, a factor or a statement is left out; a condition becomes true or false; arguments are
swapped; or another variable with a similar name is used. The seed draws the mutants, spread evenly over the
lines of all files. Mutants that do not compile do not count. Each mutant is made in a copy of the tree under
build/mutate, built by CMake, and run on each sweep until one fails. With --cmake
-DATTNBENCH_SANITIZE=address,undefined a sanitizer can fail it, too. Verdicts:

    caught       a case fails, crashes or hangs; the first one is named
    refused      no case fails, but the kernel now skips cases that it passed (`attnbench gate` says: missing)
    survived     no case fails: the change makes no difference, or the sweeps have a gap
    same code    the program is the same, byte for byte

scripts/mutate_equivalent.json says of each known survivor why it changes nothing that a kernel must
guarantee. The exit code is 1 if a survivor has no such reason, 2 if nothing can be run. Needs Python 3 and
its standard library only."""
import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutate"
# checks.h is left out: it refuses launches that contradict the contract, and no sweep makes one.
FILES = ["kernels/cpu/*", *(f"kernels/common/{name}.h" for name in ("addressing", "descale", "mask", "quantise", "rotary", "score"))]
SWEEPS = ["configs/smoke.yaml", "configs/semantics.yaml", "configs/semantics_ops.yaml"]
SWAPS = {" < ": [" <= "], " <= ": [" < "], " > ": [" >= "], " >= ": [" > "], " == ": [" != "], " != ": [" == "], " && ": [" || "], " || ": [" && "],
         " + ": [" - "], " - ": [" + "], " * ": [" / "], " / ": [" * "], " % ": [" / "], " += ": [" = ", " -= "], " *= ": [" = "],
         " << ": [" >> "], " >> ": [" << "], " & ": [" | "], " | ": [" & "], "std::min": ["std::max"], "std::max": ["std::min"]}
SWAP = re.compile("|".join(re.escape(k) for k in sorted(SWAPS, key=len, reverse=True)))
TERM = r"[\w.:\[\]]+(?:->[\w.\[\]]+)*(?:\([^()]*\))?"
LEFT_OUT = re.compile(rf" [-+*/%&|] {TERM}(?= [-+,;:?)]|[,;)\]])")
NUMBER = re.compile(r"(?<![\w.])(?:0x[0-9a-fA-F]+u?|\d+\.\d+(?:e[-+]?\d+)?f?|(?:0|[1-9]\d*)u?)(?![\w.])")
ARGUMENTS = re.compile(rf"(?<=[(\s])({TERM}), ({TERM})(?=[,)])")
CHOICE = re.compile(r"\? ([^?:;]+) : ([^?:;,]+?)(?=[;,)]|$)")
STATEMENT = re.compile(r"^\s+((?:continue|break|\+\+\w+)|(?!return\b)[\w.:\[\]>()*-]+ [-+*|&]?= .*|(?:[\w.:>-]|\[[^\]]*\])+\(.*\));$")
BOUND = re.compile(r"(?<=; )(\w+) (<|<=) ([^;<>]+)(?=; )")
CONDITION = re.compile(r"\bif (?:constexpr )?\((?:[^()]*; )?((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))+)\)")
DECLARED = re.compile(r"(?!.*\breturn $)[\w>&*] [*&]?$")
# Words in names, and the words that they are easily confused with.
WORDS = {"k": "vq", "v": "k", "q": "k", "m": "l", "l": "m", "kv": ["q"], "token": ["head", "block"], "head": ["token"], "block": ["token"],
         "begin": ["end"], "end": ["begin"], "first": ["last"], "last": ["first"], "left": ["right"], "right": ["left"], "lo": ["hi"], "hi": ["lo"],
         "cos": ["sin"], "sin": ["cos"], "row": ["token"], "batch": ["head"], "outer": ["head"], "total": ["max"]}


git = lambda *command: subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def fail(text):
    print(f"mutate: {text}", file=sys.stderr)
    sys.exit(2)


def neighbours(number):
    """The next constants: one more and one less; for a float, 0.1 % more."""
    hexadecimal = number.startswith("0x")
    digits = number.rstrip("u" if hexadecimal else "uf")
    if "." in digits:
        return [str(float(f"{float(digits) * 1.001:.12g}") or 1.0) + number[len(digits):]]
    return [(hex(n) if hexadecimal else str(n)) + number[len(digits):] for n in (int(digits, 0) + 1, int(digits, 0) - 1) if n >= 0]


def siblings(name, names):
    """Names in use that differ from this one in one easily confused word."""
    parts = re.split(r"(_)", name)
    other = ["".join(parts[:i] + [w] + parts[i + 1:]) for i, part in enumerate(parts) for w in WORDS.get(part, [])]
    return [n for n in [*other, name + "_v", re.sub("_v$", "", name), re.sub("_$", "_v_", name), re.sub("_v_$", "_", name)] if n != name and n in names]


def changes(code, names):
    """All changes of a line as (kind, begin, end, new text). Strings and comments of `code` are blank."""
    for m in SWAP.finditer(code):
        yield from (("operator", *m.span(), new) for new in SWAPS[m.group()])
    for m in LEFT_OUT.finditer(code):
        yield "left out", *m.span(), ""
    for m in NUMBER.finditer(code):
        yield from (("constant", *m.span(), new) for new in neighbours(m.group()))
    for m in ARGUMENTS.finditer(code):
        yield "arguments", *m.span(), f"{m.group(2)}, {m.group(1)}"
    for m in CHOICE.finditer(code):
        yield "choice", *m.span(), f"? {m.group(2)} : {m.group(1)}"
    for m in BOUND.finditer(code):
        yield "bound", *m.span(), f"{m.group(1)} {m.group(2)} {m.group(3)} - 1"
    for m in re.finditer(r"[A-Za-z_]\w*", code):
        if not DECLARED.search(code[:m.start()]):
            yield from (("name", *m.span(), new) for new in siblings(m.group(), names))
    yield from (("statement", *m.span(1), "") for m in [STATEMENT.match(code)] if m)
    yield from (("condition", *m.span(1), new) for m in [CONDITION.search(code)] if m for new in ("true", "false"))


def blanked(text):
    """The lines of a C++ file with comments, strings, directives and assertions replaced by blanks."""
    blank = lambda m: re.sub(r"[^\n]", " ", m.group())
    text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", blank, text, flags=re.S)
    return re.sub(r"^\s*(?:#|using|template|static_assert|ATTNBENCH_UNROLL|\.\w+ = )[^\n]*|^const Kernel .*?^};", blank, text, flags=re.M | re.S).split("\n")


def mutants(paths, seed):
    """All changes in random order, but no line has a second change before all lines near it have one."""
    draw, shared, pools = random.Random(seed), set(), []
    texts = {p: (ROOT / p).read_text() for p in paths}
    for path in [*texts, *(ROOT / "kernels/contract").glob("*.h")]:
        shared.update(re.findall(r"[A-Za-z]+_\w*", (ROOT / path).read_text()))
    for path, text in texts.items():
        lines, names = [], shared | set(re.findall(r"[A-Za-z_]\w*", text))
        for number, (line, code) in enumerate(zip(text.split("\n"), blanked(text)), 1):
            kinds = collections.defaultdict(list)
            for kind, begin, end, new in changes(code, names):
                after = line[:begin] + new + line[end:]
                if after != line:
                    kinds[kind].append({"file": path, "line": number, "kind": kind, "old": line.strip(), "new": after.strip()})
            if kinds:
                lines.append([draw.choice(kinds[kind]) for kind in draw.sample(list(kinds), len(kinds))])
        chunks = [lines[i:i + 4] for i in range(0, len(lines), 4)]
        pools += [[m for depth in range(20) for line in draw.sample(c, len(c)) for m in line[depth:depth + 1]] for c in chunks]
    draw.shuffle(pools)
    return [pool[depth] for depth in range(max(map(len, pools), default=0)) for pool in pools if depth < len(pool)]


def copy_tree():
    """Copies files that git does not ignore to WORK/src. Unchanged files keep their times, so builds go on."""
    names = {n for n in git("ls-files", "-co", "--exclude-standard").splitlines() if (ROOT / n).is_file()} or fail("not a git checkout")
    for target in (t for t in (WORK / "src").rglob("*") if t.is_file() and str(t.relative_to(WORK / "src")) not in names):
        target.unlink()
    for source, target in ((ROOT / n, WORK / "src" / n) for n in names):
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def build():
    """Builds the program and returns its digest, or None if it does not build."""
    done = subprocess.run(["cmake", "--build", WORK / "build", "--target", "attnbench"], capture_output=True)
    return hashlib.sha256((WORK / "build" / "attnbench").read_bytes()).hexdigest() if done.returncode == 0 else None


def run_sweep(sweep, args):
    """Runs a sweep; returns how many cases passed, and the first wrong one."""
    out = WORK / "run"
    shutil.rmtree(out, ignore_errors=True)
    command = [WORK / "build" / "attnbench", "run", *shlex.split(sweep), "--device", args.device, "--no-time", "--fail-fast", "--quiet",
               "--timeout", "30", "--out", out, *(x for k in args.kernel for x in ("--kernel", k))]
    done = subprocess.run(command, cwd=WORK / "src", capture_output=True, text=True, errors="replace")
    if not (out / "results.json").exists():
        return 0, {"case": "", "by": [f"exit code {done.returncode}"], "reason": done.stderr.strip()[-300:]}
    entries = [e["attnbench"] for e in json.loads((out / "results.json").read_text())["benchmarks"]]
    for e in entries:
        if e["status"] not in ("pass", "skip"):
            by = (e["check"] or {}).get("failed_by") or [e["status"]]
            return 0, {"case": e["id"], "by": by, "reason": e["reason"][:300]}
    return sum(e["status"] == "pass" for e in entries), None


def judge(mutant, plain, args):
    """The mutant with its verdict; None if it does not build."""
    target = WORK / "src" / mutant["file"]
    original = target.read_text()
    lines = original.split("\n")
    lines[mutant["line"] - 1] = mutant["new"]
    try:
        target.write_text("\n".join(lines))
        digest = build()
        if digest in (None, plain["digest"]):
            return digest and {**mutant, "verdict": "same code"}
        for sweep in args.sweep:
            passed, wrong = run_sweep(sweep, args)
            if wrong:
                return {**mutant, "verdict": "caught", "config": sweep, **wrong}
            if passed < plain["passed"][sweep]:
                return {**mutant, "verdict": "refused", "config": sweep, "reason": f"{passed} of {plain['passed'][sweep]} cases passed"}
        return {**mutant, "verdict": "survived"}
    finally:
        target.write_text(original)


def reasons():
    """Why a surviving change makes no difference: (file, old line, new line) -> reason."""
    return {tuple(c): e["why"] for e in json.loads((ROOT / "scripts/mutate_equivalent.json").read_text()) for c in e["changes"]}


def in_source(file, line):
    return line in [text.strip() for text in (ROOT / file).read_text().splitlines()]


def stale():
    """Changes with a reason whose old line is not in the source any more."""
    return [c for c in reasons() if not in_source(c[0], c[1])]


def reason(known, m):
    return known.get((m["file"], m["old"], m["new"])) or (None if in_source(m["file"], m["old"]) else "the line has changed since")


def tables(data):
    """Two Markdown tables (verdicts by file, survivors by reason), and how many survivors have no reason."""
    columns = [*data["sweeps"], "refused", "survived", "same code"]
    known, files, survivors = reasons(), collections.defaultdict(collections.Counter), collections.Counter()
    for m in data["mutants"]:
        for row in (m["file"], "all"):
            files[row][m["config"] if m["verdict"] == "caught" else m["verdict"]] += 1
        survivors[reason(known, m)] += m["verdict"] == "survived"
    by_file = ["| file | mutants | " + " | ".join("caught by " + c if c in data["sweeps"] else c for c in columns) + " |", "|---|--:|" + "--:|" * len(columns)]
    for name, tally in sorted(files.items(), key=lambda x: (x[0] == "all", x[0])):
        by_file.append(f"| {name} | {sum(tally.values())} | " + " | ".join(str(tally[c]) for c in columns) + " |")
    by_reason = ["| survivors | why they are none |", "|--:|---|"]
    by_reason += [f"| {n} | {why or 'NOT EXPLAINED'} |" for why, n in survivors.most_common() if n]
    return "\n".join(by_file), "\n".join(by_reason), survivors[None]


def report(data):
    """Prints the tables; returns 1 if a survivor has no reason."""
    files, survivors, unexplained = tables(data)
    print(f"\n{files}\n\n{survivors}")
    return int(unexplained > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", action="append", metavar="GLOB", help="sources to change, from the root of the tree; may be repeated")
    parser.add_argument("--sweep", action="append", metavar="'CONFIG [OPTIONS]'", help=f"may be repeated; default: {', '.join(SWEEPS)}")
    parser.add_argument("--kernel", action="append", default=[], help="run only this one; may be repeated")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cmake", default="", metavar="OPTIONS", help="for the configuration, such as -DATTNBENCH_CUDA=OFF")
    parser.add_argument("--list", action="store_true", help="print the changes, make none")
    parser.add_argument("--out", type=pathlib.Path, help="results file, written as mutants are judged")
    parser.add_argument("--again", type=pathlib.Path, metavar="FILE", help="only the survivors of such a file: a sweep has other cases now")
    args = parser.parse_args()
    args.sweep = args.sweep or SWEEPS
    paths = sorted({str(p.relative_to(ROOT)) for g in args.file or FILES for p in ROOT.glob(g) if p.suffix in (".h", ".cpp", ".cu", ".cuh")})
    old = json.loads(args.again.read_text()) if args.again else {"not_built": 0, "mutants": []}
    chosen = [m for m in old["mutants"] if m["verdict"] == "survived"] if args.again else mutants(paths, args.seed) or fail("nothing to change")
    if args.list:
        return print("\n".join(f"{m['file']}:{m['line']}: {m['kind']}\n  - {m['old']}\n  + {m['new']}" for m in chosen[:args.count]))
    copy_tree()
    revision = git("describe", "--always", "--dirty", "--abbrev=12")
    os.environ["GIT_CEILING_DIRECTORIES"] = str(WORK)  # a commit meanwhile must not change the program
    options = [*(["-G", "Ninja"] if shutil.which("ninja") else []), "-DCMAKE_BUILD_TYPE=Release", "-DATTNBENCH_TESTS=OFF", *shlex.split(args.cmake)]
    if subprocess.run(["cmake", "-S", WORK / "src", "-B", WORK / "build", *options], stdout=subprocess.DEVNULL).returncode != 0:
        fail("CMake cannot configure the tree")
    plain = {"digest": build() or fail("the unchanged program does not build"), "passed": {}}
    for sweep in args.sweep:
        plain["passed"][sweep], wrong = run_sweep(sweep, args)
        plain["passed"][sweep] or fail(f"{sweep}: the unchanged kernel passes no case, or not all: {wrong}")
    data = {"made_by": "scripts/mutate.py", "commands": [*old.get("commands", []), shlex.join(sys.argv)], "revisions": [*old.get("revisions", []), revision],
            "sweeps": args.sweep, "passed": plain["passed"], "not_built": old["not_built"], "mutants": [m for m in old["mutants"] if m not in chosen]}
    for i, mutant in enumerate(chosen):
        m = judge(mutant, plain, args)
        data["not_built"] += m is None
        data["mutants"] += [m] if m else []
        print(f"{i + 1}. {m['verdict'] if m else 'not built'}: {mutant['file']}:{mutant['line']}: {mutant['old']}  ->  {mutant['new']}", flush=True)
        if args.out:
            args.out.write_text(json.dumps(data, indent=1) + "\n")
        if not args.again and len(data["mutants"]) == args.count:
            break
    return report(data)


if __name__ == "__main__":
    sys.exit(main())
