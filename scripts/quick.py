#!/usr/bin/env python3
"""Chooses the cases of configs/quick.yaml: those of smoke that catch most wrong kernels per second.

    attnbench run smoke --no-time --device cpu --kernel cpu --out cost
    attnbench selftest smoke --device cpu --kernel cpu --out faults
    attnbench_faulty run smoke --no-time --device cpu --kernel wraps_block --kernel ... --out corpus     # of tests/faults
    scripts/quick.py --choose smoke=cost/results.json smoke=faults/selftest.json smoke=corpus/results.json
    scripts/quick.py --out results/baselines/cpu/quick.json smoke=... quick=...    # the same files of both sweeps

--choose writes the sweep by a greedy cover: the next case is the one with most wrong kernels that no case before it
catches, per second; then the cheapest case of each sweep of smoke that has none yet, if it takes at most half a second.
The selftest names one case for each fault, the cheapest among the most alike. A case has the seconds of the slowest
right kernel. --out writes what the sweeps catch, and seconds of set-up and verification. Needs Python 3 and its standard
library only."""
import argparse
import collections
import json
import pathlib
import re
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULTS = {"kv": "packed", "dtype": "bf16", "heads": "4/2", "head_dim": "64", "mask": "causal"}
IMPLIED = {("op", "attention"), ("block_size", "16"), ("kv_layout", "nhd"), ("page_layout", "shuffled")}  # by the format
MOST = 0.5  # seconds of a case that catches nothing more
HEAD = """# What `smoke` catches, in seconds: to be run at each save, as in
#
#   attnbench run quick --plugin ./mine.so --kernel mine --no-time --watch
#
# scripts/quick.py chose these cases of smoke.yaml and wrote this file. Change smoke.yaml, and choose anew.
name: quick
seed: 20
check: [sampled, invariants]
defaults: {%s}

sweeps:
"""


class Sweep:
    """What files of one sweep say of it, in any order."""

    def __init__(self, paths):
        self.seconds, self.mapping = collections.defaultdict(dict), {}  # kernel -> case -> s; case -> its sweep and keys
        self.caught, self.corpus = collections.defaultdict(dict), collections.defaultdict(list)  # seed -> fault -> case or None; kernel -> cases
        for data in (json.loads(pathlib.Path(path).read_text()) for path in paths):
            words = data["context"]["attnbench"]["command_line"]
            seed = words[words.index("--seed") + 1] if "--seed" in words else "20"
            self.caught[seed].update({f["name"]: f["case"] if f["outcome"] == "caught" else None for f in data.get("faults", []) if f["outcome"] in ("caught", "escaped")})
            entries = [e["attnbench"] for e in data.get("benchmarks", [])]
            wrong = {e["kernel"] for e in entries if e["status"] not in ("pass", "skip")}
            for e in entries:
                if e["kernel"] in wrong:
                    self.corpus[e["kernel"]] += [e["id"]] if e["status"] not in ("pass", "skip") else []
                elif e["status"] == "pass":
                    self.seconds[e["kernel"]][e["id"]] = e["stages"]["setup_s"] + e["stages"]["verify_s"]
                    self.mapping.setdefault(e["id"], (e["sweep"], settings(re.search(r"--case '(\{.*?\})' --seed", e["repro"]).group(1))))

    def summary(self):
        return {"cases": len(self.mapping), "seconds": {k: round(sum(s.values()), 2) for k, s in self.seconds.items()},
                "caught": {seed: sorted(n for n, case in f.items() if case) for seed, f in self.caught.items() if f},
                "missed": {seed: sorted(n for n, case in f.items() if not case) for seed, f in self.caught.items() if f}, "corpus": sorted(self.corpus)}


def settings(mapping):
    """The keys of a flow mapping, with their values as they stand there."""
    parts, depth, quoted = [""], 0, False
    for c in mapping.strip()[1:-1]:
        quoted ^= c == '"'
        depth += (c in "{[") - (c in "}]")
        if c == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return {k: v for k, v in (p.strip().split(": ", 1) for p in parts) if (k, v) not in IMPLIED}


def choose(catchers, seconds):
    """The greedy cover. `catchers`: wrong kernel -> the cases that catch it."""
    left, chosen = {w for w, cases in catchers.items() if any(c in seconds for c in cases)}, []
    while left:
        gain = collections.Counter(c for w in left for c in catchers[w] if c in seconds)
        best = max(gain, key=lambda c: (gain[c] / seconds[c], c))
        chosen.append(best)
        left -= {w for w in left if best in catchers[w]}
    return chosen


def yaml(cases):
    """One sweep for the cases of a sweep of smoke that set the same keys: what they share, and the rest as `zip`."""
    groups, text, named = collections.defaultdict(list), "", collections.Counter()
    for name, keys in cases:
        groups[name, tuple(keys)].append(keys)
    for (name, keys), rows in groups.items():
        named[name] += 1
        label = name if named[name] == 1 else f"{name}_{named[name]}"
        fixed = [f"{k}: {rows[0][k]}" for k in keys if len({r[k] for r in rows}) == 1 and DEFAULTS.get(k) != rows[0][k]]
        varied = [f"{k}: [{', '.join(r[k] for r in rows)}]" for k in keys if len({r[k] for r in rows}) > 1]
        zipped = [f"zip: {{{', '.join(varied)}}}"] if len(varied) > 1 else varied
        line = f"- {{{', '.join([f'name: {label}', *fixed, *zipped])}}}"
        text += textwrap.fill(line, 118, initial_indent="  ", subsequent_indent="      ", break_long_words=False, break_on_hyphens=False) + "\n"
    return HEAD % ", ".join(f"{k}: {v}" for k, v in DEFAULTS.items()) + text


def write_sweep(smoke):
    seconds = collections.defaultdict(float)
    for case, s in (x for of in smoke.seconds.values() for x in of.items()):
        seconds[case] = max(seconds[case], s)
    catchers = {**{fault: [case] for fault, case in smoke.caught["20"].items() if case}, **smoke.corpus}
    chosen = set(choose(catchers, seconds))
    for sweep in {smoke.mapping[c][0] for c in seconds} - {smoke.mapping[c][0] for c in chosen}:
        cheapest = min((c for c in seconds if smoke.mapping[c][0] == sweep), key=seconds.get)
        chosen |= {cheapest} if seconds[cheapest] <= MOST else set()
    (ROOT / "configs/quick.yaml").write_text(yaml([smoke.mapping[c] for c in smoke.mapping if c in chosen]))
    print(f"configs/quick.yaml: {len(chosen)} cases, {sum(seconds[c] for c in chosen):.1f} s, for {len(catchers)} wrong kernels")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choose", action="store_true", help="write configs/quick.yaml")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="write what the sweeps catch")
    parser.add_argument("files", nargs="+", metavar="SWEEP=FILE", help="results.json or selftest.json")
    args = parser.parse_args()
    paths = collections.defaultdict(list)
    for name, path in (text.split("=", 1) for text in args.files):
        paths[name].append(path)
    sweeps = {name: Sweep(of) for name, of in paths.items()}
    if args.choose:
        write_sweep(sweeps["smoke"])
    if args.out:
        quick = sweeps["quick"]  # with smoke's seed its cases catch what they do in smoke
        quick.caught["20"].update({f: case for f, case in sweeps["smoke"].caught["20"].items() if case in quick.mapping})
        quick.corpus.update({k: cases for k, cases in sweeps["smoke"].corpus.items() if set(cases) & set(quick.mapping)})
        args.out.write_text(json.dumps({"made_by": "scripts/quick.py", **{n: s.summary() for n, s in sweeps.items()}}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
