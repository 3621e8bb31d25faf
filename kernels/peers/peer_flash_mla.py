"""FlashMLA (deepseek-ai): flash_mla_with_kvcache, the dense decode of DeepSeek's latent attention."""
import attnbench as ab

flash_mla = ab.need("flash_mla", "pip install git+https://github.com/deepseek-ai/FlashMLA")

import call_views


# dense_decode: sm_90, pages of 64, head_dim 576 of which V is the first 512. splitkv_mla: LSE in natural
# logarithm, +inf for a row without keys. Its tests fill rows past the last key with NaN.
@ab.attention("paged causal head_dim_v v_is_k_view bf16 fp16", head_dim=576, block_size=64, p="input", returns=True,
              lengths="host", min_compute_capability=90)
def flash_mla_decode(c):
    """FlashMLA: flash_mla_with_kvcache"""
    if c.compute_capability >= 100:
        raise ab.Unsupported("dense decode is for compute capability 90")
    if c.num_heads_kv != 1 or c.head_dim_v != 512 or not c.has("v_is_k_view"):
        raise ab.Unsupported("one KV head, and V as the first 512 channels of K, required")
    call_views.refuse_blind_queries(c, "flash_mla's LSE of it is +inf")
    q, (k, used, block_table) = call_views.queries(c), c.torch("k seqused_k block_table")
    # Older versions make the tables of the scheduler here, newer ones in the first launch and keep them.
    tables, splits = flash_mla.get_mla_metadata(used, q.shape[1] * c.num_heads_q, 1)

    def launch():
        out, lse = flash_mla.flash_mla_with_kvcache(
            q, k, block_table, used, 512, tables, splits, softmax_scale=c.softmax_scale, causal=bool(c.causal))
        return call_views.rows(out), call_views.rows_of_lse(lse)
    return launch
