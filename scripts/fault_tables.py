"""The table of faults by group, from what `attnbench selftest` wrote. A part of readme_tables.py."""
import collections

#: Groups of faults, and the classes of harness/selftest/faults_*.cpp in each.
GROUPS = {
    "masks": ["mask", "custom masks", "lists of keys"], "lengths, empty rows": ["lengths", "empty rows"], "paging, NaN in padding": ["paging", "NaN"],
    "heads, widths": ["heads", "widths"], "scores, probabilities, dropout": ["scores", "training"], "splits, merges, LSE": ["split and merge", "num_splits", "merge states", "LSE"],
    "quantised inputs": ["quantised", "8-bit inputs", "scales and rows", "scales of blocks"],
    "writes to the cache": ["append in the call", "append", "quantised append", "returned queries"],
    "rotary embedding": ["rotary", "positions of queries", "keys that turn when read"], "kv_move": ["move"], "gradients": ["gradients"],
    "a key of the sweep ignored": ["ignored"], "stray and missing writes": ["memory"], "state between launches": ["state"],
    "dependence on layout, strides": ["layout", "strides"], "launches that must be refused": ["refusals"]}
RULES = ("allclose_1e2", "twice_naive")


def without_group(faults):
    return sorted({f["class"] for f in faults} - {c for classes in GROUPS.values() for c in classes})


def passed(faults):
    """How many of the faults each common rule does not see."""
    return [str(sum(f[rule] == "pass" for f in faults)) for rule in RULES]


def groups(faults):
    """Head, alignment and rows: a row for each group."""
    rows = []
    for name, classes in GROUPS.items():
        of = [f for f in faults if f["class"] in classes]
        detectors = collections.Counter(d.removeprefix("invariant:") for f in of for d in dict.fromkeys(f["caught_by"]))
        rows.append([name, str(len(of)), ", ".join(f"`{d}`" for d, _ in detectors.most_common(4)), *passed(of)])
    rows.append(["all", str(len(faults)), "", *passed(faults)])
    return ["what is wrong", "faults", "most frequent detectors", "allclose 1e-2 passes", "twice naive passes"], "lrlr", rows


def clues(data, demand):
    """How many faults a clue names, in some case, and in how many cases a clue names another cause."""
    faults, cases = data["faults"], sum(f["cases"] for f in data["faults"])
    named, misnamed = sum(f["named"] > 0 for f in faults), sum(f["misnamed"] for f in faults)
    demand(named >= 0.9 * len(faults), "clues name less than 90 % of the faults")
    demand(misnamed < 0.01 * cases, "clues name another cause in 1 % of the cases")
    unnamed = ", ".join(f"`{f['name'].split('/')[1]}`" for f in faults if f["named"] == 0)
    return (f"{named} of {len(faults)} faults ({100 * named / len(faults):.0f} %) are named in one of their cases; "
            f"another cause is named in {misnamed} of {cases:,} cases ({100 * misnamed / cases:.1f} %). Not named: {unnamed}.")
