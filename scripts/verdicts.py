#!/usr/bin/env python3
"""Writes the verdicts of a results file as a small CSV, the form in which results/baselines/ keeps sweeps
without times.

    attnbench run configs/smoke.yaml --device cuda --out results/runs/smoke
    ./scripts/verdicts.py results/runs/smoke/results.json --out results/baselines/<gpu>/smoke.csv

--only REGEX lists the cases in whose ids it is found; the head counts the others as `unlisted`.
One line for each case and kernel that ran: id (empty: that of the line above), kernel, status, and the figures
of the check (harness/judge/README.md). Lines that begin with # say how the file was made, and how many cases were
skipped. `none`: no size of that mistake would have been seen. Needs Python 3 and its standard library only.
"""
import argparse
import collections
import csv
import io
import json
import pathlib
import re
import shlex
import sys

FIGURES = ["max_z", "max_row_z2", "bias_se", "lse_max_z", "rows", "rows_total"]
POWER = ["softmax_scale", "softmax_scale_by_o", "o_scale", "dropped_key", "dropped_key_by_o"]  # of check.power


def shown(value):
    """A figure with four digits, which are enough for a z."""
    return f"{value:.4g}" if isinstance(value, float) else "none" if value is None else value


def write(results, out, only=""):
    context = results["context"]["attnbench"]
    entries = [b["attnbench"] for b in results["benchmarks"]]
    listed = [e for e in entries if re.search(only, e["id"])]
    counts = collections.Counter(e["status"] for e in listed)
    if len(listed) < len(entries):
        counts["unlisted"] = len(entries) - len(listed)
    device = context["device"]
    out.write(f"# attnbench {context['version']}, revision {context['revision']}\n")
    out.write(f"# {shlex.join(context['command_line'])}\n")
    out.write(f"# {results['context']['date']}, {device['model']}, driver {device.get('driver') or 'none'}\n")
    out.write(f"# {', '.join(f'{n} {status}' for status, n in sorted(counts.items()))}\n")
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["id", "kernel", "status"] + FIGURES + POWER + ["reason"])
    ran = [e for e in listed if e["status"] != "skip"]
    place = {}
    for e in ran:
        place.setdefault(e["id"], len(place))
    above = None
    for e in sorted(ran, key=lambda e: place[e["id"]]):
        check = e["check"] or {}
        name, above = "" if e["id"] == above else e["id"], e["id"]
        figures = [shown(check.get(f, "")) for f in FIGURES] + [shown(check.get("power", {}).get(f, "")) for f in POWER]
        table.writerow([name, e["kernel"], e["status"]] + figures + [e["reason"]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, help="results.json of attnbench run")
    parser.add_argument("--out", type=pathlib.Path, help="file to write (default: standard output)")
    parser.add_argument("--only", default="", metavar="REGEX", help="list only cases in whose ids it is found")
    args = parser.parse_args()
    try:
        text = io.StringIO()
        write(json.loads(args.results.read_text()), text, args.only)
        if args.out:
            args.out.write_text(text.getvalue())
        else:
            print(text.getvalue(), end="")
    except (OSError, ValueError) as e:
        sys.exit(f"verdicts: {e}")
    except (KeyError, TypeError) as e:
        sys.exit(f"verdicts: {args.results}: not a results.json of attnbench run ({e})")


if __name__ == "__main__":
    main()
