#!/usr/bin/env python3
"""Judges the kernels that other projects publish, wrapped in kernels/peers, and writes what results/public_kernels.md shows.

    ./scripts/public_kernels.py --attnbench build/attnbench -o public_kernels.json
    TRITON_INTERPRET=1 ./scripts/public_kernels.py ...    # without a GPU, in Triton's interpreter: in fp16

--jobs processes run at a time, and nothing is timed. One that takes longer than --limit seconds is stopped; its other cases are not
counted. Needs Python 3 and its standard library only; the kernels need torch, triton and their packages.
"""
import argparse
import collections
import concurrent.futures
import importlib.metadata
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

PEERS = pathlib.Path(__file__).resolve().parent.parent / "kernels" / "peers"
#: Peers: project, distribution, and where it is not on PyPI or older there, the commit.
PROJECTS = {
    "vllm_triton": ("vLLM", "vllm", ""), "sglang_triton": ("SGLang", "sglang", ""), "lmdeploy": ("LMDeploy", "lmdeploy", ""),
    "lightllm": ("LightLLM", "", "fc72ffab"), "flag_attn": ("FlagAttention", "", "ee91638d"),
    "fla": ("flash-linear-attention", "fla-core", ""), "flashinfer_triton": ("FlashInfer", "flashinfer-python", ""),
    "xformers_splitk": ("xFormers", "xformers", "")}
#: What servers send, in small, and a ratio of heads that tiles of 16 do not divide (Falcon-180B's).
CASES = """
name: public
seed: 67
defaults: {kv: paged, dtype: bf16, heads: 4/2, head_dim: 64, mask: causal, batch: [q1s40_q1s1, q5s40_q20s21]}
sweeps:
  - {name: heads, heads: [4/2, 2]}
  - {name: ratios, heads: [8/1, 6/2], batch: q1s40_q1s130}
  - {name: ratio_29, heads: 58/2, batch: q1s20}
  - {name: pages, block_size: 64, heads: [4/2, 2], batch: q1s70_q1s130}
  - {name: shapes, zip: {head_dim: [80, 128, 64], dtype: [bf16, fp16, fp32]}}
  - {name: full, mask: none, batch: [q5s40_q20s21, q70s130]}
  - {name: scores, zip: {softcap: [0, 30], sinks: [true, false]}}
  - {name: window, window: ["15,-1"]}
  - {name: alibi, alibi: per_head}
  - {name: hnd, kv_layout: hnd}
  - {name: packed, kv: packed, batch: [q5_q37_q1, 2q40, 2q9s40, 2q1s70], heads: [4/2, 2]}
  - {name: vision, kv: packed, batch: [q5_q37_q1, 2q40], mask: none, heads: [4/2, 2]}
  - {name: packed_scores, kv: packed, batch: [q37_q7, 2q1s70], zip: {softcap: [0, 30, 0], sinks: [true, false, false], window: ["-1,-1", "-1,-1", "15,-1"]}}
  - {name: mla, batch: q1s40_q1s1, heads: 16/1, head_dim: 576, head_dim_v: 512, v_is_k_view: true, block_size: 64}
  - {name: merge, op: merge_states, batch: q9_q2, heads: 3, states: 2, partial_dtype: [same, fp32], partial_lse: [dense, strided], empty_states: [0, 0.3]}
  - {name: merge_base2, op: merge_states, batch: q3_q1, heads: 2, head_dim: 16, states: [2, 5], partial_dtype: same, lse_log: base2, empty_states: [0, 0.3]}
  - {name: merge_ragged, op: merge_states, batch: q2_q1, heads: 2, head_dim: 16, states_per_row: varied, partial_dtype: same, lse_log: base2, empty_states: 0}
  - {name: fill, op: kv_append, batch: q9_q2, heads: 4, head_dim: [64, 80], kv_layout: [nhd, hnd]}
  - {name: gather, op: kv_move, move: gather, starts: none, batch: q0s1_q0s40_q0_q0s70, heads: 2, head_dim: [64, 80]}
"""


def version(peer):
    _, package, commit = PROJECTS[peer]
    try:
        return commit or importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def file_of(peer):
    return PEERS / f"peer_{peer}.py"


def groups(args):
    """Lists (peer, kernels of a process), where a kernel is (name, summary)."""
    for peer in args.peers.split(","):
        found = re.findall(r'^def ([a-z]\w+)\(c\):\n    """(.*?)(?:"""|\n)', file_of(peer).read_text(), re.M)
        mine = [kernel for kernel in found if re.search(args.only, kernel[0])]
        yield from ((peer, mine[n:n + args.group]) for n in range(0, len(mine), args.group))


def run(args, peer, names, out):
    """Runs the cases on some kernels of a peer and returns the results."""
    command = [args.attnbench, "run", out.parent / "public.yaml", *args.sweeps, "--plugin", file_of(peer), "--kernel", ",".join(names),
               "--device", args.device, "--check", "sampled", "--no-time", "-q", "--timeout", "120", "--out", out]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        said = process.communicate(timeout=args.limit)[1]
    except subprocess.TimeoutExpired:
        said = "stopped"
        for _ in range(2):  # the first lets it end the case in hand
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=8)
                break
            except subprocess.TimeoutExpired:
                pass
        process.kill()
    try:
        results = json.loads((out / "results.json").read_text())
        if not results["benchmarks"]:  # it was stopped twice
            lines = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
            results["benchmarks"] = [line for line in lines if "status" in line.get("attnbench", ())]
    except OSError:
        results = None
    return results, said


def wrong(a):
    """What is reported of a case: the error in sigmas and in units of the output."""
    check = a.get("check") or {}
    worst = check.get("worst") or {}
    return {"repro": a["repro"].partition(" --seed")[0], "status": a["status"], "reason": a["reason"][:200], "lse_max_z": check.get("lse_max_z"),
            **{key: worst.get(key) for key in ("got", "expected", "sigma")}}


def summary(peer, kernel, results, said):
    name, words = kernel
    own = [b["attnbench"] for b in (results or {"benchmarks": []})["benchmarks"] if b["attnbench"]["kernel"] == name]
    counts = collections.Counter(a["status"] for a in own)
    not_right = [a for a in own if a["status"] not in ("pass", "skip")]
    not_right.sort(key=lambda a: math.prod(a["params"].get(key, 1) for key in ("total_k", "num_heads_q", "head_dim")))  # the smallest first
    return {"kernel": name, "peer": peer, "project": PROJECTS[peer][0], "version": version(peer), "summary": words, "asked": len(own),
            "complete": bool(results) and results["context"]["attnbench"]["complete"], "statuses": dict(counts),
            "smallest_wrong": [wrong(a) for a in not_right[:2]], "said": "" if own else said[-200:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attnbench", default="build/attnbench")
    parser.add_argument("-o", "--out", required=True)
    parser.add_argument("--peers", default=",".join(PROJECTS))
    parser.add_argument("--sweeps", nargs="*", default=[], help="further sweeps, such as smoke and semantics, which take hours in an interpreter")
    parser.add_argument("--only", default="", help="regular expression of kernels")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--group", type=int, default=3, help="kernels of a process")
    parser.add_argument("--limit", type=float, default=3600)
    args = parser.parse_args()
    args.device = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        folder = pathlib.Path(folder)
        (folder / "public.yaml").write_text(CASES)
        runs = [(peer, mine, pool.submit(run, args, peer, [k[0] for k in mine], folder / str(n))) for n, (peer, mine) in enumerate(groups(args))]
        ended = [(peer, kernel, *made.result()) for peer, mine, made in runs for kernel in mine]
    context = next((r["context"] for *_, r, _ in ended if r), {"attnbench": {}})
    known = context["attnbench"]
    own = {"date": context.get("date"), "revision": known.get("revision"), "device": known.get("device", {}).get("model"),
           "interpreter": args.device == "cpu", "versions": known.get("plugins", [{}])[0].get("versions")}
    found = [summary(*e) for e in ended]
    pathlib.Path(args.out).write_text(json.dumps({"context": own, "kernels": found}, separators=(",", ":")).replace('{"kernel"', '\n{"kernel"') + "\n")


if __name__ == "__main__":
    main()
