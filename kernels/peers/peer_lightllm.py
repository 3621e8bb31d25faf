"""LightLLM's kernels in Triton (lightllm.models and lightllm.common), without what else the import of lightllm needs."""
import functools

import alone
import attnbench as ab
import torch

import call_views

_LLAMA = "lightllm.models.llama.triton_kernel."
context, gqa, gqa1, gqa2, split1, split2, scores, values, copy, vit = alone.files(
    "pip install git+https://github.com/ModelTC/lightllm", *(_LLAMA + name for name in (
        "context_flashattention_nopad", "gqa_decode_flashattention_nopad", "gqa_flash_decoding_stage1", "gqa_flash_decoding_stage2",
        "flash_decoding_stage1", "flash_decoding_stage2", "token_attention_nopad_att1", "token_attention_softmax_and_reducev")),
    "lightllm.common.basemodel.triton_kernel.destindex_copy_kv", "lightllm.models.vit.triton_kernel.flashattention_nopad",
    without=("flash_attn_interface",), is_tesla=lambda: False)

# The source: P is rounded to the type of V, tl.dot multiplies fp32 as TF32, the factor of scores is 1 / sqrt(head_dim). The
# table of all rows of a sequence is made before the launch, as the engine makes it.
_SERVED = {"device": alone.DEVICE, "p": "input", "acc_input": "tf32", "lse": "none", "lengths": "host", "returns": True}
_DIMS = (16, 32, 64, 128)


def _launch(c, function, *args):
    """A launch of function(out, *args)."""
    call_views.refuse_empty(c)
    call_views.require_scale(c)
    out = torch.empty_like(c.torch("out"))

    def launch():
        function(out, *args)
        return out
    return launch


def _cache(c):
    """K and V as rows, and for each sequence the list of its rows, its number and its length."""
    (k, v), (rows, first) = call_views.pool(c), call_views.slots(c)
    if k.stride() != v.stride():
        raise ab.Unsupported("K and V of the same strides required")
    table = torch.zeros(c.batch, max(1, c.max_seqlen_k), dtype=torch.int32, device=rows.device)
    for b, (start, end) in enumerate(zip(first.tolist(), first.tolist()[1:])):
        table[b, :end - start] = rows[start:end]
    return c.torch("q"), k, v, table, torch.arange(c.batch, dtype=torch.int32, device=rows.device), c.torch("seqused_k")


@ab.attention("paged causal bf16 fp16 fp32", head_dim=(*_DIMS, 256), serves="append", **_SERVED)
def lightllm_context(c):
    """LightLLM: context_attention_fwd, of keys in the cache"""
    q, k, v, table, order, used = _cache(c)
    (cu, older), call = (c.torch("cu_seqlens_q"), call_views.new_keys(c)[2].diff()), context.context_attention_fwd
    if not c.causal:
        raise ab.Unsupported("a causal mask required")
    return _launch(c, lambda out: call(q, k, v, out, order, cu[:-1], used, older, c.max_seqlen_q, table))


@ab.attention("packed causal bf16 fp16 fp32", head_dim=(*_DIMS, 256), serves="prefill", **_SERVED)
def lightllm_context_no_cache(c):
    """LightLLM: context_attention_fwd_no_prompt_cache"""
    call_views.require_one_cu(c)
    if not c.causal:
        raise ab.Unsupported("a causal mask required")
    q, k, v, cu = c.torch("q k v cu_seqlens_q")
    call = context.context_attention_fwd_no_prompt_cache
    return _launch(c, lambda out: call(q, k, v, out, cu[:-1], cu.diff(), c.max_seqlen_q))


@ab.attention("packed bf16 fp16 fp32", head_dim=range(16, 257), serves="prefill", **_SERVED)
def lightllm_vit(c):
    """LightLLM: flash attention of the vision tower, without a mask"""
    call_views.require_one_cu(c)
    if c.num_heads_q != c.num_heads_kv:
        raise ab.Unsupported("one query head per KV head required")
    q, k, v, cu = c.torch("q k v cu_seqlens_q")
    return _launch(c, lambda out: vit._flash_attention_triton_fwd(q, k, v, out, cu, c.max_seqlen_q))


_decode = functools.partial(ab.attention, "paged causal bf16 fp16 fp32", serves="decode", head_dim=_DIMS)


@_decode(**_SERVED)
def lightllm_gqa_decode(c):
    """LightLLM: gqa_decode_attention_fwd"""
    q, k, v, *tables = _cache(c)
    return _launch(c, lambda out: gqa.gqa_decode_attention_fwd(q, k, v, out, *tables))


def _split(c, stage1, stage2, keys):
    q, k, v, table, order, used = _cache(c)
    shape = (c.batch, c.num_heads_q, c.max_seqlen_k // keys + 1, c.head_dim)
    partial, lse = (torch.empty(s, dtype=torch.float32, device=q.device) for s in (shape, shape[:3]))

    def both(out):
        stage1.flash_decode_stage1(q, k, v, table, order, used, c.max_seqlen_k, partial, lse, keys)
        stage2.flash_decode_stage2(partial, lse, used, out, keys)
    return _launch(c, both)


@_decode(**_SERVED)
def lightllm_gqa_flash_decoding(c):
    """LightLLM: gqa_token_decode_attention_flash_decoding, its two stages"""
    return _split(c, gqa1, gqa2, 128)


# These two multiply P and V in fp32.
@_decode(**_SERVED | {"p": "fp32", "acc_input": "fp32"})
def lightllm_flash_decoding(c):
    """LightLLM: token_decode_attention_flash_decoding, its two stages"""
    return _split(c, split1, split2, 256)


@_decode(**_SERVED | {"p": "fp32", "acc_input": "fp32", "padding": "finite"})
def lightllm_token_attention(c):
    """LightLLM: token_att_fwd and token_softmax_reducev_fwd, scores in memory; the latter reads row 0 of the pool for no key"""
    q, k, v, table, order, used = _cache(c)
    starts, logits = torch.nn.functional.pad(used.cumsum(0), (1, 0)).int(), q.new_empty((c.num_heads_q, int(used.sum())), dtype=torch.float32)

    def both(out):
        scores.token_att_fwd(q, k, logits, table, order, starts, used, c.max_seqlen_k)
        values.token_softmax_reducev_fwd(logits, v, out, table, order, starts, used)
    return _launch(c, both)


@ab.kv_append("paged head_dim_v bf16 fp16 fp32", head_dim=(*_DIMS, 256), device=alone.DEVICE)
def lightllm_copy_kv(c):
    """LightLLM: destindex_copy_kv"""
    (key, value, slots), (k, v) = c.torch("key value slot_mapping"), call_views.pool(c, "k_cache v_cache")

    def launch():
        kept = slots >= 0  # the engine has no padding
        copy.destindex_copy_kv(key[kept], slots[kept], k)
        copy.destindex_copy_kv(value[kept], slots[kept], v)
    return launch
