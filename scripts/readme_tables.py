#!/usr/bin/env python3
"""Writes the figures of the READMEs and of the pages beside them from results/, so that no figure is typed by
hand.

    ./scripts/readme_tables.py                  # writes the tables, and tests/faults/sensitivity.svg
    ./scripts/readme_tables.py --check          # writes nothing; fails if a figure differs from the results
    ./scripts/readme_tables.py selftest ...     # these tables alone, by the NAME below

A table stands between the lines <!-- figures: NAME --> and <!-- end --> of a .md file. For each name, TABLES
has the files of results/baselines from which it is made, and the function that makes it. The results must also
meet some demands (a bar, a verdict, the size of results/). A table whose results do not is left as it is and
named; the others are written, and the exit code is 1. Needs Python 3 and its standard library only.
"""
import argparse
import csv
import json
import math
import pathlib
import re
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True  # for the modules beside this file

import fault_tables
import gate_trust
import gradient_tables
import mutate
import page_differences
import peers_tables
import sanitize_cpu
import sanitize_gpu
import sensitivity_plot

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLOT = ROOT / "tests" / "faults" / "sensitivity.svg"
MOST_BYTES = 4 << 20  # limit for results/


class Refused(Exception):
    """A table cannot be made: the results do not meet a demand."""


def demand(holds, what, remedy="measure again, as results/README.md says"):
    if not holds:
        raise Refused(f"{what}; {remedy}")


def table(head, align, rows):
    """A Markdown table. `align` is l or r for each column; the last letter holds for all that follow."""
    align += align[-1] * (len(head) - len(align))
    lines = ["| " + " | ".join(head) + " |", "|" + "".join("---|" if a == "l" else "--:|" for a in align)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def significant(x, digits):
    return f"{x:.{max(0, digits - 1 - math.floor(math.log10(x)))}f}" if x else "-"


def entries(results):
    """The attnbench objects of a results file, by case and kernel."""
    own = [b["attnbench"] for b in results["benchmarks"]]
    return {(a["id"], a["kernel"]): a for a in own}


# --- Times and counters of kernels ---------------------------------------------------------------------------

QUANTITIES = {
    "us": lambda a: f"{a['time']['median_us']:.1f}",
    "tflops": lambda a: f"{a['tflops']:.0f}",
    "gbs": lambda a: f"{a['gbs']:.0f}",
    "sol": lambda a: f"{100 * a['sol']:.0f}",
    "bytes": lambda a: f"{a['bytes'] / 1e6:.1f} MB",
    "read": lambda a: f"{a['counters']['dram_read_bytes'] / 1e6:.1f} MB",
    "written": lambda a: f"{a['counters']['dram_write_bytes'] / 1e6:.1f} MB",
    "over": lambda a: f"{a['counters']['dram_over_model']:.3f}",
    "tensor": lambda a: f"{a['counters']['tensor_active_percent']:.1f} %",
    "l2": lambda a: f"{a['counters']['l2_hit_percent']:.1f} %",
}


def kernels(head, columns, rows, kernel=None):
    """A table of cases. columns: (quantity, id with {} for the row's batch); rows: (label, batch[, kernel])."""

    def cell(found, quantity, case, name):
        a = found.get((case, name))
        return "" if a is None else QUANTITIES[quantity](a) if a["status"] == "pass" else "-"

    def make(results):
        found = entries(results)
        lines = []
        for label, batch, *named in rows:
            name = named[0] if named else kernel
            figures = [cell(found, q, case.format(batch), name) for q, case in columns]
            demand(any(figures), f"no case of the row '{label}' of {name}")
            lines.append([label] + named + figures)
        return table(head, "lr" if kernel else "llr", lines)

    return make


P16, P64, P256 = (f"attention/paged{n}-nhd-shuffled" for n in (16, 64, 256))
PACKED = "attention/packed"
PREFILL, DECODE, E4M3 = "/bf16/h16-16/d128/causal/{}", "/bf16/h32-8/d128/causal/{}", "/bf16-kv_e4m3/h32-8/d128/causal/{}"
ROTATED = "/bf16/h32-8/d128/causal/append/neox/{}"
APPEND = "kv_append/paged16-nhd-shuffled/bf16"

EIGHT_BITS = [("us", p + f"/bf16{kv}/h32-8/d128/causal/{{}}") for kv in ("", "-kv_e4m3", "-kv_int8") for p in (P16, P64)]
BY_PAGE, PAGES = [("us", p + DECODE) for p in (P16, P64, P256)], ["page 16", "page 64", "page 256"]
RATES = [("tflops", PACKED + f"/bf16/{shape}/{mask}/{{}}") for shape in ("h16-16/d128", "h32-32/d64", "h8-8/d256") for mask in ("causal", "full")]
RATES += [("tflops", p + PREFILL) for p in (P64, P16, P256)]
RATES_HEAD = ["D 128 causal", "full", "D 64 causal", "full", "D 256 causal", "full", "D 128 causal, pages of 64", "of 16", "of 256"]
LENGTHS = [("32 x 512", "32q512"), ("16 x 1024", "16q1k"), ("8 x 2048", "8q2k"), ("4 x 4096", "4q4k"), ("2 x 8192", "2q8k"), ("1 x 16384", "q16k")]
STEPS = [("1 x 1k", "q1s1k"), ("1 x 8k", "q1s8k"), ("1 x 32k", "q1s32k"), ("8 x 4k", "8q1s4k"), ("32 x 1k", "32q1s1k"), ("32 x 8k", "32q1s8k"), ("128 x 8k", "128q1s8k")]
EIGHT_BITS_HEAD = ["batch x context", *(f"{t}page {n}" for t in ("bf16, ", "e4m3, ", "int8, ") for n in (16, 64))]
EIGHT_BITS_STEPS = [STEPS[1], *STEPS[5:]]
EIGHT = ("32 x 8k, 8 query tokens", "32q8s8k")
MIXED_STEPS = [
    ("2,048 tokens over 8,192 keys, 63 decodes at 4,096", "q2ks8k_63q1s4k"), ("the chunk alone", "q2ks8k"), ("the decodes alone", "63q1s4k"),
    ("512 over 2,048, 15 decodes at 1,024", "q512s2k_15q1s1k"), ("512 over 2,048, 255 at 1,024", "q512s2k_255q1s1k"),
    ("2 x 1,024 over 4,096, 126 at 2,048", "2q1ks4k_126q1s2k"),
    ("128 over 1,024, 31 at 1,024", "q128s1k_31q1s1k"), ("1,024 over 4,096, 15 at 2,048", "q1ks4k_15q1s2k"),
    ("1,024, 500 over 3,072 and 300 over 1,024; 20 at 512, 20 at 2,048, 20 at 6,144", "q1k_q500s3k_q300s1k_20q1s512_20q1s2k_20q1s6k")]


def peers(fa4, *files):
    """Later files win. Those but the first are what `attnbench compare RUN --by kernel --format json` printed."""
    found = entries(fa4)
    for data in files:
        found |= peers_tables.compared(data)
    failed = [a["status"] for a in found.values()] + [s for data in files for case in data["cases"] for s in case["status"].values()]
    demand(set(failed) <= {"pass", "skip"}, "a kernel failed, and the page says that none did")
    return table(*peers_tables.peers(found))


def door(gpu, cpu):
    demand(set(gpu["counts"]) == {"same"}, "a kernel is not as fast from Python as from C++")
    return peers_tables.door(gpu, cpu)


def three_of_each(*ids):
    return [(quantity, case) for case in ids for quantity in ("us", "gbs", "sol")]


# Rows of the first README: case, kernel. Rows of one case stand together.
QUICKSTART = [(case, kernel) for case, names in (
    (PACKED + "/bf16/h32-8/d128/causal/4q512", ("cuda_simt", "sm90_prefill")),
    (P16 + DECODE.format("32q1s1k"), ("cuda_simt", "sm90_prefill", "sm90_decode")),
    (P16 + DECODE.format("q512s2k_15q1s1k"), ("sm90_prefill", "sm90_mixed")),
    (APPEND + "/h8/d128/pad8/2q512s1k", ("cuda_simt", "cuda_append"))) for kernel in names]


def quickstart(h100):
    """The table as a terminal of 100 columns shows it; ReportConsole.TheTableOfTheReadmeIsWhatItPrints compares the two."""
    found, lines = entries(h100), [["status", "kernel", "time", "± %", "TFLOP/s", "GB/s", "%SOL", "bound", "max|z|", "rows"]]
    for case, kernel in QUICKSTART:
        a = found[case, kernel]
        demand(a["status"] == "pass", f"{case}/{kernel} did not pass")
        t, c = a["time"], a["check"]
        half = max(t["hi_us"] - t["median_us"], t["median_us"] - t["lo_us"]) / t["median_us"]
        lines.append([a["status"], kernel, significant(t["median_us"], 4) + " us", significant(100 * half, 2),
                      significant(a["tflops"], 4), significant(a["gbs"], 4), significant(100 * a["sol"], 3), a["bound"],
                      "exact" if c["method"] == "bitwise" else f"{c['max_z']:.2f}",
                      str(c["rows"]) if c["rows"] == c["rows_total"] else f"{c['rows']}/{c['rows_total']}"])
    widths, left = [max(map(len, column)) for column in zip(*lines)], (0, 1, 7)
    rows = ["  " + "  ".join(x.ljust(w) if i in left else x.rjust(w) for i, (x, w) in enumerate(zip(line, widths))).rstrip() for line in lines]
    out, above = [rows[0]], None
    for (case, _), row in zip(QUICKSTART, rows[1:]):
        out += ([case] if case != above else []) + [row]
        above = case
    return "\n".join(["```", "$ attnbench run quickstart", *out, "```"])


# --- The program itself --------------------------------------------------------------------------------------

def harness_cost(*files):
    """The figures of the program itself; tests/README.md has the bars."""
    columns = []
    for data in files:
        cpu, context = data["context"]["device"] == "cpu", data["context"]
        ms = {b["name"].split("/iterations")[0]: b["real_time"] for b in data["benchmarks"]}
        mib = {b["name"].split("/")[1][5:]: b["host_mib"] for b in data["benchmarks"] if "host_mib" in b}
        cold, hot = ms["overhead_of_a_case/cold"], ms["overhead_of_a_case/hot"]
        watching = next(b for b in data["benchmarks"] if b["name"].startswith("watching"))
        demand(ms["expand_100000_cases"] < 1000, "expanding takes more than 1 s")
        demand(max(cold, hot) < (50 if cpu else 150), "a case costs more than its bar")
        demand(cpu or (watching["longer_percent"] <= 25 and abs(watching["slower_percent"]) <= 0.5), "watching costs more than its bars")
        # A thread of the reference holds the scores of its tile: 4 query heads x 131,072 keys in float64. There are 8
        # such tiles in the benchmark's case. No tensor may be held whole: K and V are 512 MiB.
        demand(max(mib.values()) - min(mib.values()) < 16 + 4 * min(8, context["num_cpus"]), "host memory grows with the keys and values")
        demand(not any(b.get("error_occurred") for b in data["benchmarks"]), "a benchmark failed")
        columns.append([*(f"{x:.0f} ms" if x >= 1 else f"{x:.2f} ms" for x in (ms["expand_100000_cases"], cold, hot)),
                        *(f"{watching[name]:+.1f} %" for name in ("longer_percent", "slower_percent")),
                        " / ".join(f"{x:.0f}" for x in mib.values()) + " MiB"])
    keys = " / ".join(f"{int(k):,}" for k in mib)
    labels = ["100,000 cases expanded", "overhead of a case, cold", "overhead of a case, hot", "watching: wall time of a case",
              "watching: time of its launches", f"host memory at {keys} keys"]
    return table(["", "cpu", "H100"], "lr", [[label, *cells] for label, *cells in zip(labels, *columns)])


def verdicts(*texts):
    rows = []
    for name, text in zip(VERDICTS, texts):
        lines = text.splitlines()
        head = [line[2:] for line in lines if line.startswith("# ")]
        listed = [r["status"] for r in csv.DictReader(line for line in lines if not line.startswith("# "))]
        counts = {status: int(n) for n, status in (part.split() for part in head[3].split(", "))}
        demand(len(listed) == listed.count("pass") == counts["pass"], f"{name}: not every case passed, or its head counts others")
        command = shlex.split(head[1])
        for option in ("--out", "-q"):
            if option in command:
                at = command.index(option)
                del command[at:at + (2 if option == "--out" else 1)]
        rows.append([f"`{name}`", f"`{shlex.join(['attnbench', *command[1:]])}`", str(counts["pass"]), str(len(listed) - counts["pass"])])
    return table(["file", "made by", "runs right", "wrong"], "llr", rows)


def power(text):
    """The smallest mistakes that the verdicts of a sweep would have seen, as quantiles over its cases."""
    cases, rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("# "))), []
    for what, key in (("relative error of `softmax_scale`", "softmax_scale"), ("relative error of O", "o_scale"), ("weight of a dropped key", "dropped_key")):
        for by, column in (("O and LSE", key), ("O alone", f"{key}_by_o")):
            if column not in cases[0]:
                continue
            seen = [c[column] for c in cases if c[column]]
            sizes = sorted(100 * float(x) for x in seen if x != "none")
            demand(len(sizes) > 100, f"{len(sizes)} cases have the figure {column}")
            rows.append([what, by] + [f"{sizes[round(q * (len(sizes) - 1))]:.2g} %" for q in (0, 0.5, 0.95, 1)] + [str(len(seen) - len(sizes))])
    return table(["mistake", "seen by", "least", "median", "95 % of cases", "most", "not seen"], "llr", rows)


def gate_trust_load(*files):
    for tally in (t for data in files for t in data["loads"]):
        demand(tally["wrong"] == 0, "a verdict names the wrong direction")
        demand(0 < tally["gates"] == tally["right"] + tally["inconclusive"], "gates are missing")
    return gate_trust.load_table(files)


def cold(*files):
    """How far times with warm code, and with --cache cold, are from those between real kernels."""
    rows = []
    for data in files:
        gpu = data["context"]["attnbench"]["device"]["model"]
        for kernel in dict.fromkeys(r["kernel"] for r in data["runs"]):
            of = [r for r in data["runs"] if r["kernel"] == kernel]
            warm = sorted(100 * (1 - r["cold_data_us"] / r["between_us"]) for r in of)
            strays = sorted(abs(100 * (r["cold_us"] / r["between_us"] - 1)) for r in of)
            demand(sum(s <= 2 for s in strays) >= 0.98 * len(of), f"--cache cold strays too far for {kernel} on {gpu}")
            rows.append([gpu, kernel, str(len(of)), f"{warm[len(warm) // 2]:.1f} %", f"{warm[-1]:.0f} %",
                         f"{strays[len(strays) // 2]:.2f} %", f"{strays[-1]:.1f} %"])
    return table(["GPU", "kernel", "cases", "warm code too fast by", "largest", "`cold` off by", "largest"], "llr", rows)


# --- What the checks catch -----------------------------------------------------------------------------------

def mutants(data):
    demand(len(data["mutants"]) >= 80 and len({m["file"] for m in data["mutants"]}) >= 20, "mutants of too few files")
    demand(all(m["old"] != m["new"] for m in data["mutants"]), "a mutant changes nothing")
    demand(all(len(why) > 10 for why in mutate.reasons().values()), "a reason in scripts/mutate_equivalent.json is none")
    demand(not mutate.stale(), f"scripts/mutate_equivalent.json explains lines that are not in the source: {mutate.stale()}",
           "write the new text of the line there if the reason still holds, else remove the entry")
    files, _, unexplained = mutate.tables(data)
    demand(not unexplained, "a survivor has no reason in scripts/mutate_equivalent.json")
    head, align, *_, all_files = files.splitlines()
    return "\n".join([head, align, all_files])


def selftest(data):
    faults, clean, counts = data["faults"], data["clean"], data["summary"]
    demand(len(faults) >= 45 and clean["runs"] >= 500, "too few faults or clean runs")
    demand(counts["caught"] == len(faults), "a fault escaped")
    demand(clean["false_alarms"] == 0, "a right kernel was called wrong")
    unknown = fault_tables.without_group(faults)
    demand(not unknown, f"GROUPS of scripts/fault_tables.py has no group for {', '.join(unknown)}", "add the class to one")
    return (table(*fault_tables.groups(faults)) +
            f"\n\n{counts['caught']} of {len(faults)} faults caught; {clean['runs']:,} clean runs, {clean['false_alarms']} false alarms.")


def quick(data):
    """What quick catches of that which smoke does: with the seed of both, and with another one; and of the wrong kernels."""
    smoke, rows = data["smoke"], []
    known = set(smoke["caught"]["20"])
    for name in ("smoke", "quick"):
        of = data[name]
        share = {seed: (len(known & set(of["caught"][seed])), len(known & {*of["caught"][seed], *of["missed"][seed]})) for seed in of["caught"]}
        share["corpus"] = len(set(of["corpus"]) & set(smoke["corpus"])), len(smoke["corpus"])
        demand(all(caught >= 0.95 * tried > 0 for caught, tried in share.values()), f"{name} catches too little: {share}", "scripts/quick.py --choose")
        seconds = f"{of['seconds']['mine']:.1f}" if "mine" in of["seconds"] else ""
        rows.append([f"`{name}`", str(of["cases"]), seconds, *("{} of {}".format(*share[k]) if k in share else "" for k in ("20", "21", "corpus"))])
    demand(data["quick"]["seconds"]["mine"] <= 10, "quick takes too long", "scripts/quick.py --choose")
    return table(["sweep", "cases", "C++ start, s", "faults caught", "with another seed", "wrong kernels of this folder"], "lr", rows)


def cheats(*files):
    """What caught which cheats on each device."""
    found = [{c["name"]: c for c in data["cheats"]} for data in files]
    demand(all(c["as_it_must_be"] for data in found for c in data.values()), "a cheat got through, or an honest kernel was accused")
    verdict = lambda c: c["verdict"].split(",")[0]
    of = [[(verdict(c), f"`{name}`") for name, c in sorted(data.items()) if not c["honest"]] for data in found]
    by = sorted({v for device in of for v, _ in device}, key=lambda v: (-sum(v == other for device in of for other, _ in device), v))
    rows = [[f"`{v}`" if " " not in v else v, *(", ".join(name for other, name in device if other == v) for device in of)] for v in by]
    honest = sum(c["honest"] for data in found for c in data.values())
    return table(["first detector", "on the CPU", "on an H200"], "l", rows) + f"\n\n{sum(map(len, of))} runs of cheats, {honest} of honest plug-ins; no honest one was accused."


def fuzz(*files):
    """A row for each run. All but the first must be clean."""
    demand(any(data["seconds"] >= 600 for data in files), "no run took 10 minutes")
    demand(not any(data["findings"] for data in files[1:]), "a case failed in a run that must be clean")
    rows = []
    for name, data in zip(FUZZ, files):
        counts = [sum(k[n] for k in data["kernels"]) for n in ("ran", "with_invariants", "skipped", "failed")]
        rows.append([f"`{name}`", data["context"]["attnbench"]["revision"][:7], f"{data['seconds'] / 60:.1f}", *(f"{n:,}" for n in counts)])
    return table(["file", "revision", "minutes", "ran", "with invariants", "refused", "failed"], "llr", rows)


def on_both(head, columns, rows, on_h200, kernel):
    """A table of an H100's cases, and below them of some on an H200."""

    def make(h100, h200):
        below = kernels(head, columns, [(f"H200: {label}", batch) for label, batch in on_h200], kernel)(h200)
        return "\n".join([kernels(head, columns, rows, kernel)(h100), *below.split("\n")[2:]])

    return make


# --- Which table is made of which files ----------------------------------------------------------------------

VERDICTS = ["h100/smoke.csv", "cpu/smoke.csv", "h100-checks/semantics.csv", "h100-checks/large.csv"]
GATES = [f"{where}/gate_trust{which}.json" for where, which in (("h100-checks", ""), ("h100-checks", "_near"), ("cpu", ""), ("cpu", "_slow"), ("cpu", "_turns"))]
FUZZ = ["h100-checks/fuzz_ten_minutes.json", "h100-checks/fuzz.json"]

TABLES = {
    "quickstart": (["h100/quickstart.json"], quickstart),
    "prefill": (["h100/prefill.json"], kernels(["lengths", *RATES_HEAD], RATES, LENGTHS, "sm90_prefill")),
    "decode": (["h100/decode.json"], kernels(["batch x context", *PAGES, *(f"appending, {p}" for p in PAGES[:2])], BY_PAGE + [("us", p + ROTATED) for p in (P16, P64)], [*STEPS, EIGHT], "sm90_decode")),
    "decode_eight_bits": (["h100/decode.json", "h200-checks/decode.json"], on_both(EIGHT_BITS_HEAD, EIGHT_BITS, EIGHT_BITS_STEPS, EIGHT_BITS_STEPS, "sm90_decode")),
    "mixed": (["h100/mixed.json", "h200-checks/mixed.json"], on_both(["step", *PAGES], BY_PAGE, MIXED_STEPS, MIXED_STEPS[:3], "sm90_mixed")),
    "cascade": (["h100/mixed.json"], kernels(["decodes", "one call", "`path: cascade`"], [("us", f"attention/paged64-nhd-shared8192/bf16/h32-8/d128/causal/{path}{{}}") for path in ("", "cascade/")], [(n, f"{n}q1s8448") for n in ("32", "128", "256")], "sm90_mixed")),
    "append": (["h100/decode.json"], kernels(["tokens", "copy, us", "GB/s", "%SOL", "with rotary, us", "GB/s", "%SOL"],
                                             three_of_each(APPEND + "/h8/d128/{}", APPEND + "/h8/d128/neox/{}"), [("128", "128q1s1k"), ("8,192", "4q2k"), ("65,536", "32q2k")], "cuda_append")),
    "append_quantised": (["h100/decode.json"], kernels(["tokens", "to e4m3, scales given, us", "GB/s", "%SOL", "to e4m3, computed scales, rotary, us", "GB/s", "%SOL", "to int8, rotary, us", "GB/s", "%SOL"],
                                                       three_of_each(*(f"{APPEND}-kv_{to}/{{}}" for to in ("e4m3/h8/d128", "e4m3-per_token/h8/d128/neox", "int8/h8/d128/neox"))), [("8,192", "4q2k"), ("65,536", "32q2k")], "cuda_append")),
    "merge": (["h100/decode.json"], kernels(["states", "us", "GB/s", "%SOL"], three_of_each("merge_states/bf16/h32/d128/{}/4q2k"), [("2, fp32", "2xfp32"), ("8, fp32", "8xfp32"), ("2, bf16", "2xbf16"), ("8, bf16", "8xbf16")], "cuda_merge")),
    "peers": ([f"h100-checks/{name}.json" for name in ("peers_fa4", "peers_more", "peers")], peers),
    **{k: ([f"{f}.json" for f in files], lambda *data, make=getattr(peers_tables, k): table(*make(*data))) for k, files in peers_tables.FILES.items()},
    "serving": ([f"h100-checks/serving{which}.json" for which in ("", "_more", "_earlier", "_steps", "_layout")],
                lambda *data: table(*peers_tables.serving(*data[:3])) + "\n\n" + peers_tables.serving_notes(data[1], *data[3:])),
    "public_kernels": (["cpu/public_kernels.json"], lambda data: table(*peers_tables.public_kernels(data))),
    "public_proofs": (["h200-checks/public_proofs.txt"], lambda text: table(*peers_tables.public_proofs(text))),
    "door": (["h100-checks/door.json", "cpu/door.json"], door),
    "cold": ([f"{gpu}-checks/cold.json" for gpu in ("h100", "h200")], cold),
    "cheats": (["cpu/cheats.json", "h200-checks/cheats.json"], cheats),
    "counters": (["h100-checks/counters.json"], kernels(
        ["case", "kernel", "model", "DRAM read", "written", "over model", "tensor", "L2 hits"],
        [(q, "{}") for q in ("bytes", "read", "written", "over", "tensor", "l2")],
        [("decode, 32 of 8k", P64 + DECODE.format("32q1s8k"), "sm90_decode"), ("the same, KV in e4m3", P64 + E4M3.format("32q1s8k"), "sm90_decode"),
         ("causal prefill, 4 of 4k", PACKED + PREFILL.format("4q4k"), "sm90_prefill"),
         ("full prefill, 1 of 16k", PACKED + "/bf16/h16-16/d128/full/q16k", "sm90_prefill"),
         ("append, 32 of 2k", APPEND + "/h8/d128/32q2k", "cuda_append")])),
    "harness_cost": (["cpu/harness_cost.json", "h100-checks/harness_cost.json"], harness_cost), "verdicts": (VERDICTS, verdicts),
    "serving_cost": (["cpu/serving_cost.json"], lambda data: table(*peers_tables.serving_cost(data, demand))),
    "gate_trust": (GATES, lambda *files: gate_trust.table(files)),
    "gate_trust_load": (["cpu/gate_trust_load.json", "cpu/gate_trust_busy.json"], gate_trust_load),
    "fuzz": (FUZZ, fuzz),
    "sanitizer": (["h100-checks/sanitizer.json"], sanitize_gpu.by_tool),
    "sanitizers": (["cpu/sanitizers.json"], sanitize_cpu.table),
    "mutants": (["cpu/mutants.json"], mutants),
    "selftest": (["cpu/selftest.json"], selftest),
    "quick": (["cpu/quick.json"], quick),
    "clues": (["cpu/clues.json"], lambda data: fault_tables.clues(data, demand)),
    "power": (["cpu/smoke.csv"], power),
    **{f"{k}_backward": (gradient_tables.files(f"{k}_backward"), lambda *data, make=getattr(gradient_tables, k): table(*make(*data)))
       for k in ("sensitivity", "peers")},
    "sensitivity": (["cpu/sensitivity.json"], lambda data: sensitivity_plot.tables(data["sensitivity"])),
}

# --- READMEs -------------------------------------------------------------------------------------------------

BLOCK = re.compile(r"<!-- figures: (\S+) -->\n(.*?)<!-- end -->", re.S)


def place(name):
    """The path of a file of TABLES, from the root of the tree."""
    return f"results/baselines/{name}"


def load(name):
    text = (ROOT / place(name)).read_text()
    return json.loads(text) if name.endswith(".json") else text


def made(name):
    files, make = TABLES[name]
    try:
        return make(*map(load, files)).strip("\n") + "\n"
    except KeyError as e:
        raise Refused(f"{', '.join(map(place, files))}: no {e}, which the table {name} shows") from e
    except (OSError, ValueError, Refused) as e:
        raise Refused(f"table {name}, of {', '.join(map(place, files))}: {e}") from e


def tracked(pattern):
    listed = subprocess.run(["git", "ls-files", "-z", pattern], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists()]


def update(path, check, names, seen):
    """Writes the tables into a page; with `check`, nothing. Returns what is wrong: with `check`, also the differences."""
    text, page, wrong = path.read_text(), path.relative_to(ROOT), []

    def replace(block):
        name, now = block.groups()
        line = text.count("\n", 0, block.start()) + 1
        if name not in TABLES:
            wrong.append(f"{page}:{line}: no table '{name}': TABLES of scripts/readme_tables.py names all")
            return block.group()
        seen.add(name)
        if names and name not in names:
            return block.group()
        try:
            then = made(name)
        except Refused as e:
            wrong.append(f"{page}:{line}: {e}")
            return block.group()
        if check:
            wrong.extend(page_differences.differences(page, line + 1, ", ".join(map(place, TABLES[name][0])), now, then))
        return f"<!-- figures: {name} -->\n{then}<!-- end -->"

    new = BLOCK.sub(replace, text)
    if not check and new != text:
        path.write_text(new)
        print(f"wrote {page}")
    return wrong


def update_plot(check):
    try:
        plot = sensitivity_plot.plot(load("cpu/sensitivity.json")["sensitivity"])
    except (OSError, ValueError, KeyError) as e:
        return [f"{PLOT.relative_to(ROOT)}: results/baselines/cpu/sensitivity.json: {e!r}"]
    if not check:
        PLOT.write_text(plot)
    return [] if PLOT.read_text() == plot else [f"{PLOT.relative_to(ROOT)}: not the plot of results/baselines/cpu/sensitivity.json"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a figure differs")
    parser.add_argument("table", nargs="*", help="only these tables; default: all, and the plot")
    args = parser.parse_args()
    if unknown := [name for name in args.table if name not in TABLES]:
        parser.error(f"no table '{unknown[0]}'; there are: {', '.join(sorted(TABLES))}")
    seen, wrong = set(), []
    try:
        for path in tracked("*.md"):
            wrong += update(path, args.check, args.table, seen)
        size = sum(-(-path.stat().st_size // 4096) * 4096 for path in tracked("results"))  # on disk
    except OSError as e:
        sys.exit(f"readme_tables: {e}")
    except subprocess.CalledProcessError as e:
        sys.exit(f"readme_tables: {e}: {e.stderr.strip()}")
    wrong += [f"scripts/readme_tables.py: no page has the line <!-- figures: {name} -->" for name in TABLES if name not in seen]
    wrong += [] if args.table else update_plot(args.check)
    if size >= MOST_BYTES:
        wrong.append(f"results/: {size} bytes, {MOST_BYTES} are too many; keep verdicts only (scripts/verdicts.py) or fewer cases")
    if wrong:
        advice = "; to write the figures of results/: ./scripts/readme_tables.py" if args.check else "; the other tables are written"
        sys.exit("\n".join([*wrong, f"readme_tables: {len(wrong)} wrong{advice}"]))


if __name__ == "__main__":
    main()
