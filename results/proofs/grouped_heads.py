"""Decode with 29 query heads per KV head, as Falcon-180B has: the kernel gives a KV head two tiles of 16 query heads, and the last
three of the second tile are heads of the next KV head, which read the wrong one. NumPy in float64 beside the kernel, without attnbench.
Needs a GPU, torch, triton and the package:

    python3 results/proofs/grouped_heads.py vllm|sglang
"""
import sys

import numpy as np
import torch

GROUP, N, D, SCALE = 29, 100, 64, 64 ** -0.5
H = 2 * GROUP
torch.manual_seed(0)
q, k, v = (torch.randn(n, h, D, device="cuda").bfloat16() for n, h in ((1, H), (N, 2), (N, 2)))
rows, used = torch.arange(N, device="cuda"), torch.tensor([N], dtype=torch.int32, device="cuda")
out, partial, lse = torch.full_like(q, float("nan")), torch.zeros(1, H, 8, D + 1, device="cuda"), torch.zeros(1, H, 8, device="cuda")
if sys.argv[1] == "vllm":
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd
    decode_attention_fwd(q, k[:, None], v[:, None], out, lse[..., 0].contiguous(), rows.int()[None], used, partial, 8, SCALE, 1)
else:
    from sglang.srt.layers.attention.triton_ops.decode_attention import decode_attention_fwd
    indptr, splits = torch.tensor([0, N], dtype=torch.int32, device="cuda"), torch.full((1,), 8, dtype=torch.int32, device="cuda")
    decode_attention_fwd(q, k, v, out, indptr, rows, partial[..., :D].contiguous(), lse, splits, 8, SCALE, 1.0, 1.0)

q64, k64, v64 = (x.double().cpu().numpy() for x in (q[0], k, v))
for name, kv_of in (("its own KV head", lambda h: h // GROUP), ("KV head 0", lambda h: 0)):
    scores = np.stack([k64[:, kv_of(h)] @ q64[h] for h in range(H)]) * SCALE
    weights = np.exp(scores - scores.max(1, keepdims=True))
    expected = np.stack([weights[h] / weights[h].sum() @ v64[:, kv_of(h)] for h in range(H)])
    off = np.abs(out[0].double().cpu().numpy() - expected).max(1)
    print(f"heads within 0.01 of attention to {name}: {np.flatnonzero(off < 0.01).tolist()}")
