"""PyTorch: on the CPU the gradients of scaled_dot_product_attention, a call for each sequence; on a GPU those of
varlen_attn, which are FlashAttention 2's."""
import attnbench as ab

torch = ab.need("torch", "pip install torch")

import call_views


def _backward(c):
    # The mask of is_causal is top_left's. That of causal alone ends at the last key: the same for equal lengths.
    call_views.refuse_blind_queries(c, "PyTorch gives its gradients as NaN")
    lens_q, lens_k = call_views.lengths(c)
    if c.causal and not c.has("top_left") and lens_q != lens_k:
        raise ab.Unsupported("a causal mask needs as many queries as keys")
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    group = c.num_heads_q // c.num_heads_kv
    first_q, first_k = (int(x[0]) for x in c.torch("cu_seqlens_q cu_seqlens_k"))

    def parts(names, first, lens):
        """Each sequence of the tensors as (1, heads, length, channels)."""
        tensors, out = c.torch(names), []
        for n in lens:
            out.append([x[first:first + n].transpose(0, 1)[None] for x in tensors])
            first += n
        return out

    queries, keys = parts("q out d_out dq", first_q, lens_q), parts("k v dk dv", first_k, lens_k)
    lse = c.torch("lse")[None, :, first_q:].split(lens_q, 2)

    def launch():
        for (q, out, d_out, dq), (k, v, dk, dv), l in zip(queries, keys, lse):
            if q.shape[2] == 0:
                dk.zero_()
                dv.zero_()
                continue
            k, v = (x.repeat_interleave(group, 1) if group > 1 else x for x in (k, v))
            g = backward(d_out, q, k, v, out, l, 0.0, bool(c.causal), scale=c.softmax_scale)
            dq.copy_(g[0])
            for to, of_heads in ((dk, g[1]), (dv, g[2])):
                to.copy_(of_heads.unflatten(1, (-1, group)).sum(2, dtype=torch.float32) if group > 1 else of_heads)
    return launch


# P and dS are rounded to the type of the inputs before their products. A product is added to the gradients of the
# blocks before, which have that type (aten: cpu_flash_attention_backward, gemm with beta = 1). So sums of 16-bit
# types are no float32 sums. exp is Vectorized::exp_u20, with an error of 20 units in the last place.
@ab.attention_backward("packed causal top_left fp32", device="cpu", p="fp32", exp_rel_err=2**-18, lengths="host")
def torch_sdpa_flash_backward(c):
    """gradients of scaled_dot_product_attention, backend FLASH_ATTENTION, in fp32"""
    return _backward(c)


for _name, _type in (("16", "bf16"), ("fp16", "fp16")):
    ab.attention_backward(f"packed causal top_left {_type}", device="cpu", name=f"torch_sdpa_flash_backward_{_name}", p=_type, acc=_type,
                          exp_rel_err=2**-18, lengths="host",
                          summary=f"gradients of scaled_dot_product_attention, backend FLASH_ATTENTION, summed in {_type}")(_backward)


# aten's flash_api, mha_varlen_bwd: P and dS are converted to the type of the inputs, sums are float32, and those of dq
# are atomic. dk_expanded and dv_expanded, of each query head, have the type of q. The softmax is exp2f with -use_fast_math.
@ab.attention_backward("packed causal window bf16 fp16", head_dim=range(8, 257, 8), p="input", head_grads="input",
                       min_compute_capability=80)
def torch_flash_backward(c):
    """gradients of torch.nn.attention.varlen.varlen_attn: FlashAttention 2 in aten"""
    call_views.refuse_blind_queries(c, "aten's LSE of it is +inf")
    q, k, v, out, d_out, lse = c.torch("q k v out d_out lse")
    cu_q, cu_k = c.torch("cu_seqlens_q cu_seqlens_k")
    grads = c.torch("dq dk dv")
    left, right = call_views.window(c)
    rng = torch.zeros(2, dtype=torch.uint64, device=q.device)
    backward = torch.ops.aten._flash_attention_backward

    def launch():
        # aten's kernel takes no stride of lse
        given = backward(d_out, q, k, v, out, lse.contiguous(), cu_q, cu_k, c.max_seqlen_q, c.max_seqlen_k, 0.0, bool(c.causal), rng, rng,
                         scale=c.softmax_scale, window_size_left=left, window_size_right=right)
        for to, grad in zip(grads, given):
            to.copy_(grad)
    return launch
