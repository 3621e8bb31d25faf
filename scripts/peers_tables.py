"""Tables of other projects' kernels beside the built-in ones, of the door for Python and of serving, for readme_tables.py. A function
returns the head, the alignment and the rows."""
import re

PACKED, PAGED = "attention/packed/", "attention/paged64-nhd-shuffled/"
HEADS_16, HEADS_32, E4M3 = "bf16/h16-16/d128/causal/", "bf16/h32-8/d128/causal/", "bf16-q_e4m3-kv_e4m3/h32-8/d128/causal/"

#: Columns: projects, and their kernels.
PROJECTS = {
    "attnbench": ("sm90_prefill", "sm90_decode", "sm90_mixed", "sm90_mla", "cuda_simt"),
    "FlashAttention 3": ("flash_attn_3", "flash_attn_3_fp8"),
    "FlashAttention 4": ("flash_attn_4",),
    "FlashInfer": ("flashinfer_prefill", "flashinfer_decode", "flashinfer_mla"),
    "FlashMLA": ("flash_mla_decode",),
    "cuDNN": ("cudnn_sdpa",),
    "PyTorch": ("torch_sdpa_flash", "torch_sdpa_efficient", "torch_sdpa_cudnn", "torch_sdpa_math", "torch_varlen"),
    "xFormers": ("xformers_varlen",),
    "SageAttention": ("sage_attention",),
    "Triton examples": ("example", "triton_paged_decode"),
}
#: Rows: cases of configs/peers.yaml.
CASES = [
    ("prefill, 8 x 2,048, 16/16 heads", PACKED + HEADS_16 + "8q2k"),
    ("prefill, 16 ragged, 16/16 heads", PACKED + HEADS_16 + "16seqs-q19173-s19173-5d80ceef"),
    ("prefill, 8 x 2,048", PACKED + HEADS_32 + "8q2k"),
    ("prefill, 16 ragged", PACKED + HEADS_32 + "16seqs-q19173-s19173-5d80ceef"),
    ("decode, 1 x 8,192", PAGED + HEADS_32 + "q1s8k"),
    ("decode, 32 x 8,192", PAGED + HEADS_32 + "32q1s8k"),
    ("decode, 64 ragged", PAGED + HEADS_32 + "64seqs-q64-s219014-330884ab"),
    ("chunk, 256 queries, 8,192 keys", PAGED + HEADS_32 + "q256s8k"),
    ("mixed, 2,048 queries and 63 decodes", PAGED + HEADS_32 + "q2ks8k_63q1s4k"),
    *[(f"MLA decode, {count} x 4,096, {heads} heads", PAGED + f"bf16/h{heads}-1/d576-512-v_is_k/causal/{count}q1s4k")
      for heads in (16, 128) for count in (32, 128)],
]


def peers(found):
    """The fastest kernel of each project that ran in each case, in us. `found`: results by (case, kernel)."""
    ran = {kernel for _, kernel in found}
    projects = {project: ran.intersection(names) for project, names in PROJECTS.items() if ran.intersection(names)}
    return ["us", *projects], "lr", [[label, *fastest(found, projects, case)] for label, case in CASES]


def fastest(found, projects, case):
    """A cell for each project: the time of its fastest kernel that ran. The fastest of all is bold."""
    times = [min((found[case, k]["time"]["median_us"] for k in names if found.get((case, k), {}).get("status") == "pass"), default=None)
             for names in projects.values()]
    best = min(t for t in times if t)
    return ["" if t is None else f"**{t:.1f}**" if t == best else f"{t:.1f}" for t in times]


#: Rows of the tables beside FlashAttention 3 and cuDNN: cases of configs/perf_peers.yaml.
LENGTHS = [("32 x 512", "32q512"), ("8 x 2,048", "8q2k"), ("1 x 16,384", "q16k")]
SHAPES = [("", PACKED + "bf16/h16-16/d128/"), ("head_dim 64", PACKED + "bf16/h32-32/d64/"), ("head_dim 256", PACKED + "bf16/h8-8/d256/"),
          ("pages of 64", PAGED + "bf16/h16-16/d128/")]
DECODES = [*[(label, PAGED + HEADS_32 + batch) for label, batch in
             [("1 x 1k", "q1s1k"), ("1 x 4k", "q1s4k"), ("1 x 32k", "q1s32k"), ("8 x 4k", "8q1s4k"), ("32 x 1k", "32q1s1k"),
              ("32 x 4k", "32q1s4k"), ("32 x 8k", "32q1s8k"), ("128 x 8k", "128q1s8k"), ("32 x 8k, 4 query tokens", "32q4s8k"),
              ("1 x 1k, appending", "append/q1s1k"), ("8 x 4k, appending", "append/8q1s4k"), ("32 x 1k, appending", "append/32q1s1k"),
              ("2,048 tokens over 8,192, 63 decodes at 4,096", "q2ks8k_63q1s4k")]],
           ("32 x 4k, 28/4 heads", PAGED + "bf16/h28-4/d128/causal/32q1s4k"),
           ("128 x 8,448, 8,192 of them shared (peers are not told)", "attention/paged64-nhd-shared8192/" + HEADS_32 + "128q1s8448")]


def beside(cases, *files):
    """A row for each of `cases` (label and id), and for each file, of a GPU, a column for each project."""
    projects = {project: PROJECTS[project] for project in ("attnbench", "FlashAttention 3", "cuDNN")}
    founds = [compared(data) for data in files]
    head = ["us", *(f"{gpu}{name}" for prefix in ("H100: ", "H200: ") for gpu, name in zip((prefix, "", ""), projects))]
    rows = [[label, *(cell for found in founds for cell in fastest(found, projects, case))]
            for label, case in cases if all((case, "sm90_prefill") in f or (case, "sm90_decode") in f or (case, "sm90_mixed") in f for f in founds)]
    return head, "lr", rows


def peers_prefill(*files):
    """The middle length only causal at head_dim 128, from packed keys and from pages."""
    return beside([(", ".join(filter(None, (label, mask, shape))), f"{ids}{mask}/{lengths}") for shape, ids in SHAPES for mask in ("causal", "full")
                   for label, lengths in LENGTHS if lengths != "8q2k" or (mask, shape) in (("causal", ""), ("causal", "pages of 64"))], *files)


def peers_decode(*files):
    return beside(DECODES, *files)


def compared(data):
    """What `attnbench compare RUN --by kernel --format json` printed, as results by (case, kernel)."""
    return {(case["id"], kernel): {"status": "pass", "time": {"median_us": us}} for case in data["cases"] for kernel, us in case.get("us", {}).items()}


#: Cases of configs/perf_e4m3.yaml and configs/perf_chunks.yaml that the tables leave out: batch and heads.
E4M3_UNSHOWN = {("32q512", "h16-16"), ("2q8k", "h16-16"), ("8q2k", "h64-8"), ("8q2k", "h32-32"), ("q128s64k", "h32-8"), ("2q4s64k", "h8-2")}
CHUNKS_UNSHOWN = {("q32s64k", "h32-8"), ("q128s64k", "h32-8"), ("q512s64k", "h32-8"), ("q64s8k", "h32-8"), ("q128s8k", "h32-8"), ("4q128s16k", "h32-8"),
                  ("q4s8k", "h8-1"), ("q512s32k", "h4-1"), ("4q256s8k", "h4-1")}


def e4m3(data):
    """configs/perf_e4m3.yaml: a row for each batch; the fastest built-in kernel, the one with one level of sums, and FlashAttention 3, by the
    types of q and of K and V."""
    types, rows = {"bf16": 0, "bf16-kv_e4m3": 1, "bf16-q_e4m3-kv_e4m3": 2}, {}
    for case in data["cases"]:
        kv, dtype, heads, dim, mask, batch, *data = case["id"].split("/")[1:]
        if dtype not in types or (batch, heads) in E4M3_UNSHOWN:  # int8: kernels/cuda/sm90_prefill/README.md
            continue
        batch = ", ".join([f"`{batch}`", *data])
        cells = rows.setdefault((batch, kv.split("-")[0], heads[1:].replace("-", "/"), dim[1:], mask), [""] * 6)
        one_level = case["us"].get("sm90_prefill_one_level")
        ours = min(us for kernel, us in case["us"].items() if kernel.startswith("sm90_") and kernel != "sm90_prefill_one_level")
        cells[types[dtype]] = f"{ours:.1f}"
        if one_level:
            cells[3] = f"{one_level:.1f}"
        other = [us for kernel, us in case["us"].items() if kernel.startswith("flash_attn_3")]
        if other:
            cells[4 + (types[dtype] > 0)] = f"{min(other):.1f}"
    head = ["us", "K and V", "heads", "head_dim", "mask", "bf16", "e4m3 K, V", "e4m3 q, K, V", "one level", "FlashAttention 3, bf16", "e4m3 q, K, V"]
    return head, "lllllr", [[*place, *cells] for place, cells in rows.items()]


def door(gpu, cpu):
    """A gate that compared one compiled kernel, called from C++ and from Python; and the same two in a hot cache of a CPU."""
    widest = max(abs(100 * r["ratio"] - 100) for r in gpu["rows"])
    lo, hi = min(100 * r["lo"] - 100 for r in gpu["rows"]), max(100 * r["hi"] - 100 for r in gpu["rows"])
    us = {b["attnbench"]["kernel"]: b["attnbench"]["time"]["median_us"] for b in cpu["benchmarks"]}
    return (f"H100, {len(gpu['rows'])} cases: at most {widest:.2f} % apart, with 95 % intervals within {lo:+.2f} .. {hi:+.2f} %.\n"
            f"CPU, a tiny case in a hot cache: {us['example']:.1f} us from C++, {us['through_python']:.1f} us from Python.")


#: Tables of chunks, latent caches, peers, e4m3 and ranks, and their files.
FILES = {"chunks": ["h100-checks/chunks", "h200-checks/chunks"], **{f"peers_{k}": [f"{gpu}-checks/perf_peers" for gpu in ("h100", "h200")] for k in ("prefill", "decode")},
         "mla": ["h100-checks/mla"], "mla_prefill": ["h100-checks/mla"],
         "e4m3": ["h100-checks/e4m3"], "dcp": ["h100x2-checks/dcp"]}
#: Kernels of the table of replayed servers, and what their columns are called.
SERVING = {"sm90_mixed": "sm90_mixed", "sm90_prefill": "sm90_prefill", "flash_attn_3": "FlashAttention 3",
           "cudnn_sdpa": "cuDNN", "flashinfer_prefill": "FlashInfer"}


def per_token(found, replay):
    """A cell for each kernel: us per generated token, and half the width of its interval in percent; the fastest is bold."""
    rows = [found.get((replay, kernel)) for kernel in SERVING]
    best = min((r["us"] for r in rows if r and r["us"]), default=None)
    cells = []
    for r in rows:
        text = f"{r['us']:.4g}" if r and r["us"] else ""
        width = f" ± {50 * (r['hi'] - r['lo']) / r['us']:.0f} %" if text else ""
        cells.append(f"**{text}**{width}" if text and r["us"] == best else text + width)
    return cells


def found_tokens(*files):
    """The times per generated token, by (replay, kernel). A replay of which steps are missing has none."""
    return {(r["replay"].removeprefix("attention/"), r["kernel"]): r for data in files for r in data["us_per_token"] if r.get("us")}


def serving(*files):
    """Replays of 16 steps, in pages of 64 tokens."""
    found, rows = found_tokens(*files), []
    for replay in dict.fromkeys(replay for replay, _ in found):
        head, label = replay.rsplit("/", 1)
        if head != "paged64-nhd-served/bf16/h32-8/d128/causal" or not label.endswith("x16"):
            continue
        mix = f"`{label.rsplit('-', 1)[0]}`" + (", 3 draft tokens" if rows and any(r[0] == f"`{label.rsplit('-', 1)[0]}`" for r in rows) else "")
        rows.append([mix, *per_token(found, replay)])
    return ["us", *SERVING.values()], "lr", rows


def serving_notes(more, steps, layout):
    """The cache writes of a replay, a replay of which all steps were timed, and how far block tables change times."""
    (replay, kernel), r = next((of, r) for of, r in found_tokens(more).items() if of[0].startswith("kv_append/"))
    every = sum(steps["us"]) / steps["output_tokens"]
    layouts = {}
    for (of, name), row in found_tokens(layout).items():
        layouts.setdefault((of.split("/")[0].split("-")[0], name), []).append(row["us"])
    widest = max(max(us) / min(us) for us in layouts.values())
    return (f"Cache writes of `{replay.rsplit('/', 1)[1].rsplit('-', 1)[0]}` by `{kernel}` add {r['us']:.3g} us ± {50 * (r['hi'] - r['lo']) / r['us']:.0f} %.\n"
            f"All {len(steps['us']):,} steps of `azure_conv_2023` on `sm90_mixed` take {every:.4g} us per token. With other block tables\n"
            f"(`contiguous`, `shuffled`, `lifo_aged`; pages of 16 and 64) a kernel's time changes by at most {100 * (widest - 1):.1f} %.")


def chunks(h100, h200):
    """configs/perf_chunks.yaml: chunks of queries over long contexts."""
    kernels = {"sm90_decode": "sm90_decode", "sm90_prefill": "sm90_prefill", "sm90_prefill_fixed": "sm90_prefill_fixed", "flash_attn_3": "FlashAttention 3"}
    rows = []
    for case, other in zip(h100["cases"], h200["cases"]):
        *_, heads, dim, _, batch = case["id"].split("/")
        if (batch, heads) in CHUNKS_UNSHOWN:
            continue
        row = [f"`{batch}`", heads[1:].replace("-", "/"), dim[1:]]
        for us in (case["us"], other["us"]):
            best = min(us.values())
            row += ["" if k not in us else f"**{us[k]:.1f}**" if us[k] == best else f"{us[k]:.1f}" for k in kernels]
        rows.append(row)
    names = list(kernels.values())
    return ["us", "heads", "head_dim", *(f"H100: {names[0]}", *names[1:]), *(f"H200: {names[0]}", *names[1:])], "lrrr", rows


def mla(data):
    """configs/perf_mla.yaml: a row for each batch and size of pages, a column for each number of heads."""
    heads, rows = ["16", "32", "64", "128"], {}
    for case in data["cases"]:
        if "sm90_mla" not in case["us"]:
            continue
        pages, _, group, _, _, batch = case["id"].split("/")[1:]
        if pages.startswith("paged32-"):  # as pages of 16 and 64
            continue
        cells = rows.setdefault((batch, pages.split("-")[0].removeprefix("paged")), dict.fromkeys(heads, ""))
        cells[group[1:].split("-")[0]] = f"{case['us']['sm90_mla']:.1f}"
    return ["us", "page", *(f"{h} heads" for h in heads)], "l", [[f"`{b}`", page, *cells.values()] for (b, page), cells in rows.items()]


def mla_prefill(data):
    """configs/perf_mla.yaml: prefills with keys of 192 channels and values of 128."""
    rows = {}
    for case in data["cases"]:
        if "sm90_prefill" in case["us"]:
            *_, mask, batch = case["id"].split("/")
            rows.setdefault(batch, {})[mask] = f"{case['us']['sm90_prefill']:.1f}"
    return ["us", "causal", "full"], "lr", [[f"`{batch}`", cells["causal"], cells["full"]] for batch, cells in rows.items()]


#: Ways to spread a decode over GPUs, as ids of configs/dcp.yaml name them.
WAYS = ["one GPU", "TP", "all_gather", "all_to_all", "fused", "TP 2 x DCP 2"]


def dcp(data):
    """configs/dcp.yaml: a row for each number of GPUs, heads and batch; the fastest way of several GPUs is bold."""
    found = {}
    for case in data["cases"]:
        if not case.get("us"):
            continue
        _, _, _, heads, _, _, *path, batch = case["id"].split("/")
        of_q, of_kv = (int(n) for n in heads[1:].split("-"))
        ranks, combine = re.fullmatch(r"dcp(\d+)x\d+-(.*)", path[0]).groups() if path else (1, "")
        found[of_q, of_kv, int(ranks), combine, batch] = min(case["us"].values())
    rows = []
    for gpus in (2, 4):
        for q, kv, ranks, _, batch in found:
            if (q, ranks) != (64, 1):
                continue
            us = [found.get(key) for key in ((q, kv, 1, "", batch), (q // gpus, max(1, kv // gpus), 1, "", batch),
                                             *((q, kv, gpus, combine, batch) for combine in WAYS[2:5]),
                                             (q // 2, max(1, kv // 2), 2, "fused", batch) if gpus == 4 else None)]
            if not any(us[2:5]):
                continue
            best = min(t for t in us[1:] if t)
            rows.append([str(gpus), f"{q}/{kv}", f"`{batch}`", *("" if t is None else f"**{t:.1f}**" if t == best else f"{t:.1f}" for t in us)])
    columns = len(WAYS) - (not any(row[-1] for row in rows))
    return ["GPUs", "heads", "batch", *(f"{way}, us" for way in WAYS[:columns])], "rllr", [row[:3 + columns] for row in rows]


def serving_cost(data, demand):
    """The simulated server and the readers of traces; harness/serving/README.md has the bars."""
    found = {}  # the best repetition of each
    for b in data["benchmarks"]:
        what, argument = b["name"].split("/")[:2]
        key = what, argument.split(":")[1]
        if key not in found or found[key]["items_per_second"] < b["items_per_second"]:
            found[key] = b
    appends, plans, reads = ([b for (of, _), b in found.items() if of == what] for what in ("append", "plan_mix", "read_trace"))
    demand(min(b["items_per_second"] for b in appends) >= 20e6, "there are fewer than 20 million appends a second")
    demand(min(b["bytes_per_second"] for b in reads) >= 200e6, "a form of trace is read at less than 200 MB/s")
    short = found["plan", "1000000"]
    demand(1e6 / short["items_per_second"] < 60, "a million short requests take more than a minute")
    slowest = min(plans, key=lambda b: b["items_per_second"])
    seconds = lambda b: f"{1e6 / b['items_per_second']:.1f} s"
    return ["", "speed"], "l", [
        ["append, in the orders `lifo`, `fifo`, `lowest`", " / ".join(f"{b['items_per_second'] / 1e6:.0f}" for b in appends) + " million tokens/s"],
        ["read " + ", ".join(b["label"] for b in reads), " / ".join(f"{b['bytes_per_second'] / 1e6:.0f}" for b in reads) + " MB/s"],
        ["plan a million short requests", seconds(short)],
        [f"plan a million requests of `{slowest['label']}`, the slowest mix", seconds(slowest)]]


def public_kernels(data):
    """A row for the kernels of a project that were right in all cases, and one for each that was not."""
    rows, kinds = [], (("pass",), ("fail",), ("skip",))
    for project in dict.fromkeys(k["project"] for k in data["kernels"]):
        own = [k for k in data["kernels"] if k["project"] == project]
        right = [k for k in own if not k["statuses"].get("fail")]
        for some in ([right] if right else []) + [[k] for k in own if k not in right]:
            counts = [sum(k["statuses"].get(s, 0) for k in some for s in kind) for kind in kinds]
            asked = sum(k["asked"] for k in some)
            names = ", ".join(f"`{k['kernel']}`" for k in some)
            off = [w for w in some[0].get("smallest_wrong", []) if w["status"] == "fail" and w["sigma"]][:1]
            rows.append([f"{project} {some[0]['version']}", names, *map(str, (asked, *counts, asked - sum(counts))),
                         *(f"{w['got']:.4g} for {w['expected']:.4g}, {abs(w['got'] - w['expected']) / w['sigma']:,.0f} sigma" for w in off), ""][:8])
    return ["project", "kernels", "cases", "right", "wrong", "refused", "no verdict", "O in the smallest wrong case"], "llr", rows


def public_proofs(text):
    """What results/proofs printed: the two lines of decode_scores.py, and heads of the second KV head that grouped_heads.py found wrong."""
    rows = []
    for block in text.split("## ")[1:]:
        script, *lines = block.strip().split("\n")
        if script.startswith("decode_scores"):
            found = [re.search(r"up to (\S+) %[^,]*(?:, LSE by (\S+))?$", line).groups() for line in lines]
            rows.append([f"`{script}`", *(f"O {float(o):.2f} %" + (f", LSE {float(lse):.1g}" if lse else "") for o, lse in found)])
        else:
            own, first = (set(map(int, re.search(r"\[(.*)\]", line)[1].split(", "))) for line in lines)
            wrong = sorted(first - own)
            rows.append([f"`{script}`", f"heads {', '.join(map(str, wrong))} of {len(first | own)} follow KV head 0 instead of 1", ""])
    return ["script", "result", "with two query heads per KV head"], "l", rows
