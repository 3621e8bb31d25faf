"""cuDNN (nvidia-cudnn-frontend): a graph of one SDPA node, with ragged offsets or page tables. It is built untimed."""
import attnbench as ab

cudnn = ab.need("cudnn", "pip install nvidia-cudnn-frontend nvidia-cudnn-cu13")
import torch

import call_views

_TYPES = {"bf16": "BFLOAT16", "fp16": "HALF"}


# Attention.md and sample 52 of cudnn-frontend: tensors are (batch, heads, rows, channels) with strides of any order, ragged
# offsets count elements, pages are (blocks, heads, block_size, channels). Statistics are not asked for. P has the type of V.
@ab.attention("packed paged hnd causal top_left bf16 fp16", head_dim=range(8, 129, 8), p="input", returns=True, lse="none", padding="finite",
              lengths="host", min_compute_capability=80)
def cudnn_sdpa(c):
    """cuDNN: pygraph.sdpa"""
    call_views.refuse_blind_queries(c, "cuDNN does not say what it gives then")
    len_q, len_k = call_views.lengths(c)
    q, k, v, cu_q, cu_k = c.torch("q k v cu_seqlens_q cu_seqlens_k")
    used, block_table = c.torch("seqused_k block_table")
    out = torch.empty(c.total_q, c.num_heads_q, c.head_dim_v, dtype=q.dtype, device=q.device)
    kind = getattr(cudnn.data_type, _TYPES[str(c.dtype_q)])
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=c.stream)
    graph = cudnn.pygraph(io_data_type=kind, intermediate_data_type=cudnn.data_type.FLOAT, compute_data_type=cudnn.data_type.FLOAT,
                          handle=handle)
    given = {}

    def add(x):
        node = graph.tensor_like(x)
        given[node] = x
        return node

    def ragged(x, cumulative, longest):
        """A packed tensor (rows, heads, channels) as (batch, heads, longest, channels) with offsets of its sequences."""
        node = graph.tensor(dim=(c.batch, x.shape[1], longest, x.shape[2]), data_type=kind,
                            stride=(longest * x.stride(0), x.stride(1), x.stride(0), 1))
        node.set_ragged_offset(add((cumulative.long() * x.stride(0)).view(-1, 1, 1, 1)))
        given[node] = x
        return node

    def each(values):
        return add(torch.tensor(values, dtype=torch.int32, device=q.device).view(-1, 1, 1, 1))

    options = {"attn_scale": c.softmax_scale, "use_padding_mask": True, "seq_len_q": each(len_q), "seq_len_kv": each(len_k)}
    if c.causal:
        options["use_causal_mask" if c.has("top_left") else "use_causal_mask_bottom_right"] = True
    if c.has("paged"):
        # As many pages as the longest sequence has: cuDNN wants no more columns.
        columns = -(-c.max_seqlen_k // c.block_size)
        tables = [add(block_table[:, :columns].contiguous().unsqueeze(1).unsqueeze(3)) for _ in "kv"]
        options |= {"paged_attention_k_table": tables[0], "paged_attention_v_table": tables[1],
                    "paged_attention_max_seq_len_kv": c.max_seqlen_k}
        nodes = [add(x if c.has("hnd") else x.transpose(1, 2)) for x in (k, v)]
    else:
        nodes = [ragged(x, cu_k, c.max_seqlen_k) for x in (k, v)]
    result, _ = graph.sdpa(name="sdpa", q=ragged(q, cu_q, c.max_seqlen_q), k=nodes[0], v=nodes[1], is_inference=True, **options)
    result.set_output(True).set_dim((c.batch, c.num_heads_q, c.max_seqlen_q, c.head_dim_v))
    result.set_stride((c.max_seqlen_q * out.stride(0), out.stride(1), out.stride(0), 1))
    result.set_ragged_offset(add((cu_q.long() * out.stride(0)).view(-1, 1, 1, 1)))
    given[result] = out
    try:
        graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    except cudnn.cudnnGraphNotSupportedError as error:
        raise ab.Unsupported(f"cuDNN has no plan: {' '.join(str(error).split())[:120]}") from None
    workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device=q.device)

    def launch():
        graph.execute(given, workspace, handle=handle)
        return out
    return launch
