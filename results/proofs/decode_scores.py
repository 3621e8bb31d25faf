"""Decode with one query head per KV head: these kernels multiply q and k in the type of q, so each score has 8 bits in bf16.
NumPy in float64 beside the kernel, without attnbench. Needs a GPU, torch, triton and the package:

    python3 results/proofs/decode_scores.py vllm|sglang|lightllm|lightllm_tokens|flag_attn|fla
"""
import sys

import numpy as np
import torch

H, N, D, SCALE = 8, 1000, 128, 128 ** -0.5
torch.manual_seed(0)
q, k, v = (torch.randn(n, H, D, device="cuda").bfloat16() for n in (1, N, N))
rows = torch.arange(N, dtype=torch.int32, device="cuda")[None]
order, used = (torch.tensor([n], dtype=torch.int32, device="cuda") for n in (0, N))


def new(*shape):
    return torch.empty(shape, device="cuda")


def vllm(q, k, v, o):
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd
    lse = new(1, q.shape[1])
    decode_attention_fwd(q, k[:, None], v[:, None], o, lse, rows, used, new(1, q.shape[1], 8, D + 1), 8, SCALE, 1)
    return lse[0]


def sglang(q, k, v, o):
    from sglang.srt.layers.attention.triton_ops.decode_attention import decode_attention_fwd
    indptr, splits = torch.tensor([0, N], dtype=torch.int32, device="cuda"), torch.full((1,), 8, dtype=torch.int32, device="cuda")
    decode_attention_fwd(q, k, v, o, indptr, rows[0].long(), new(1, q.shape[1], 8, D), new(1, q.shape[1], 8), splits, 8, SCALE, 1.0, 1.0)


def lightllm(q, k, v, o):
    from lightllm.models.llama.triton_kernel import flash_decoding_stage1, flash_decoding_stage2
    partial, lse = new(1, q.shape[1], N // 256 + 1, D), new(1, q.shape[1], N // 256 + 1)
    flash_decoding_stage1.flash_decode_stage1(q, k, v, rows, order, used, N, partial, lse, 256)
    flash_decoding_stage2.flash_decode_stage2(partial, lse, used, o, 256)


def lightllm_tokens(q, k, v, o):
    from lightllm.models.llama.triton_kernel import token_attention_nopad_att1, token_attention_softmax_and_reducev
    scores = new(q.shape[1], N)
    token_attention_nopad_att1.token_att_fwd(q, k, scores, rows, order, order, used, N)
    token_attention_softmax_and_reducev.token_softmax_reducev_fwd(scores, v, o, rows, order, order, used)


def flag_attn(q, k, v, o):
    from flag_attn import paged_attention
    blocks = [torch.nn.functional.pad(x, (0, 0, 0, 0, 0, 24)).unflatten(0, (-1, 16)).transpose(1, 2).contiguous() for x in (k, v)]
    o.copy_(paged_attention(q, *blocks, used, torch.arange(64, dtype=torch.int32, device="cuda")[None], SCALE, N))


def fla(q, k, v, o):
    from fla.ops.attn.decoding import attn_decoding_one_step
    o.copy_(attn_decoding_one_step(q[None], k[None], v[None], scale=SCALE, cu_seqlens=torch.tensor([0, N], device="cuda"))[0])


def compare(what, heads_kv):
    out, (k_of, v_of) = torch.empty_like(q), (x[:, :heads_kv].contiguous() for x in (k, v))
    lse = globals()[sys.argv[1]](q, k_of, v_of, out)
    q64, k64, v64 = (x.double().cpu().numpy() for x in (q[0], k_of.repeat_interleave(H // heads_kv, 1), v_of.repeat_interleave(H // heads_kv, 1)))
    scores = np.einsum("hd,nhd->hn", q64, k64) * SCALE
    weights = np.exp(scores - scores.max(1, keepdims=True))
    expected = np.einsum("hn,nhd->hd", weights / weights.sum(1, keepdims=True), v64)
    off = np.abs(out[0].double().cpu().numpy() - expected).max() / np.abs(expected).max()
    print(f"{what}: O is off by up to {100 * off:.3f} % of its largest element", end="")
    if lse is not None:
        print(f", LSE by {np.abs(lse.double().cpu().numpy() - scores.max(1) - np.log(weights.sum(1))).max():.1e}", end="")
    print()


compare("one query head per KV head", H)
compare("two query heads per KV head", H // 2)
