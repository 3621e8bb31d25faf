"""The contract of kernels, kernels/contract/*.h, for ctypes. Written by scripts/python_structs.py."""
from ctypes import (Structure, Union, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p)

from ._enums import (ABI_VERSION, FEATURES, PLUGIN_MAGIC, DType, DeviceKind, Feature, KernelFlag,
                     KernelStatus, Op, RotaryQ)  # noqa: F401


class RotaryParams(Structure):
    _fields_ = [
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("dim", c_int32),
        ("interleaved", c_int32),
        ("positions", c_int32),
        ("q_position", c_int32),
    ]


class AttentionParams(Structure):
    _fields_ = [
        ("features", c_uint64),
        ("batch", c_int32),
        ("num_heads_q", c_int32),
        ("num_heads_kv", c_int32),
        ("head_dim", c_int32),
        ("head_dim_v", c_int32),
        ("total_q", c_int64),
        ("max_seqlen_q", c_int32),
        ("max_seqlen_k", c_int32),
        ("dtype_q", c_int32),
        ("dtype_k", c_int32),
        ("dtype_v", c_int32),
        ("dtype_out", c_int32),
        ("q", c_void_p),
        ("q_stride_token", c_int64),
        ("q_stride_head", c_int64),
        ("cu_seqlens_q", c_void_p),
        ("seqused_q", c_void_p),
        ("qv", c_void_p),
        ("qv_stride_token", c_int64),
        ("qv_stride_head", c_int64),
        ("k", c_void_p),
        ("v", c_void_p),
        ("k_stride_block", c_int64),
        ("k_stride_token", c_int64),
        ("k_stride_head", c_int64),
        ("v_stride_block", c_int64),
        ("v_stride_token", c_int64),
        ("v_stride_head", c_int64),
        ("cu_seqlens_k", c_void_p),
        ("seqused_k", c_void_p),
        ("block_table", c_void_p),
        ("block_table_stride", c_int64),
        ("block_size", c_int32),
        ("num_blocks", c_int32),
        ("shared_prefix", c_int32),
        ("cache_batch_idx", c_void_p),
        ("cache_leftpad", c_void_p),
        ("cache_capacity", c_int64),
        ("k_new", c_void_p),
        ("v_new", c_void_p),
        ("dtype_k_new", c_int32),
        ("dtype_v_new", c_int32),
        ("k_new_stride_token", c_int64),
        ("k_new_stride_head", c_int64),
        ("v_new_stride_token", c_int64),
        ("v_new_stride_head", c_int64),
        ("cu_seqlens_new", c_void_p),
        ("total_new", c_int64),
        ("k_cache", c_void_p),
        ("v_cache", c_void_p),
        ("rotary", RotaryParams),
        ("causal", c_int32),
        ("window_left", c_int32),
        ("window_right", c_int32),
        ("attention_chunk", c_int32),
        ("custom_mask", c_void_p),
        ("mask_indptr", c_void_p),
        ("topk_indices", c_void_p),
        ("topk_stride_token", c_int64),
        ("topk_stride_head", c_int64),
        ("topk_length", c_void_p),
        ("topk", c_int32),
        ("softmax_scale", c_float),
        ("softcap", c_float),
        ("alibi_slopes", c_void_p),
        ("alibi_stride_batch", c_int64),
        ("alibi_sqrt", c_int32),
        ("num_splits", c_int32),
        ("sinks", c_void_p),
        ("q_descale", c_void_p),
        ("k_descale", c_void_p),
        ("v_descale", c_void_p),
        ("q_descale_stride_outer", c_int64),
        ("q_descale_stride_head", c_int64),
        ("k_descale_stride_block", c_int64),
        ("k_descale_stride_outer", c_int64),
        ("k_descale_stride_head", c_int64),
        ("v_descale_stride_block", c_int64),
        ("v_descale_stride_outer", c_int64),
        ("v_descale_stride_head", c_int64),
        ("cu_q_descales", c_void_p),
        ("cu_k_descales", c_void_p),
        ("q_descale_rows", c_int32),
        ("k_descale_rows", c_int32),
        ("k_block_scale", c_void_p),
        ("v_block_scale", c_void_p),
        ("k_block_scale_stride_block", c_int64),
        ("k_block_scale_stride_token", c_int64),
        ("k_block_scale_stride_head", c_int64),
        ("v_block_scale_stride_block", c_int64),
        ("v_block_scale_stride_token", c_int64),
        ("v_block_scale_stride_head", c_int64),
        ("scale_block", c_int32),
        ("dtype_block_scale", c_int32),
        ("k_tail", c_void_p),
        ("k_tail_stride_block", c_int64),
        ("k_tail_stride_token", c_int64),
        ("k_tail_stride_head", c_int64),
        ("out", c_void_p),
        ("out_scale", c_void_p),
        ("out_stride_token", c_int64),
        ("out_stride_head", c_int64),
        ("lse", c_void_p),
        ("lse_stride_head", c_int64),
        ("lse_stride_token", c_int64),
        ("probs", c_void_p),
        ("probs_stride_head", c_int64),
        ("probs_stride_token", c_int64),
        ("p_dropout", c_float),
        ("reserved", c_uint32),
        ("dropout_seed", c_uint64),
        ("dropout_offset", c_uint64),
    ]


class ScaleParams(Structure):
    _fields_ = [
        ("given", c_void_p),
        ("given_stride_head", c_int64),
        ("given_stride_channel", c_int64),
        ("computed", c_void_p),
        ("stride_block", c_int64),
        ("stride_token", c_int64),
        ("stride_head", c_int64),
    ]


class KvAppendParams(Structure):
    _fields_ = [
        ("features", c_uint64),
        ("num_tokens", c_int64),
        ("num_heads_kv", c_int32),
        ("head_dim", c_int32),
        ("head_dim_v", c_int32),
        ("dtype_in", c_int32),
        ("dtype_k", c_int32),
        ("dtype_v", c_int32),
        ("block_size", c_int32),
        ("num_blocks", c_int32),
        ("key", c_void_p),
        ("value", c_void_p),
        ("key_stride_token", c_int64),
        ("key_stride_head", c_int64),
        ("value_stride_token", c_int64),
        ("value_stride_head", c_int64),
        ("slot_mapping", c_void_p),
        ("k_cache", c_void_p),
        ("v_cache", c_void_p),
        ("k_stride_block", c_int64),
        ("k_stride_token", c_int64),
        ("k_stride_head", c_int64),
        ("v_stride_block", c_int64),
        ("v_stride_token", c_int64),
        ("v_stride_head", c_int64),
        ("rotary", RotaryParams),
        ("positions", c_void_p),
        ("positions64", c_void_p),
        ("query", c_void_p),
        ("query_out", c_void_p),
        ("query_scale", c_void_p),
        ("query_stride_token", c_int64),
        ("query_stride_head", c_int64),
        ("query_out_stride_token", c_int64),
        ("query_out_stride_head", c_int64),
        ("num_heads_q", c_int32),
        ("dtype_query_out", c_int32),
        ("k_scale", ScaleParams),
        ("v_scale", ScaleParams),
    ]


class MergeStatesParams(Structure):
    _fields_ = [
        ("features", c_uint64),
        ("num_states", c_int32),
        ("num_heads", c_int32),
        ("head_dim", c_int32),
        ("dtype_partial", c_int32),
        ("dtype_out", c_int32),
        ("reserved", c_int32),
        ("num_rows", c_int64),
        ("state_indptr", c_void_p),
        ("total_states", c_int64),
        ("partial_out", c_void_p),
        ("partial_stride_state", c_int64),
        ("partial_stride_token", c_int64),
        ("partial_stride_head", c_int64),
        ("partial_lse", c_void_p),
        ("lse_stride_state", c_int64),
        ("lse_stride_token", c_int64),
        ("lse_stride_head", c_int64),
        ("out", c_void_p),
        ("out_scale", c_void_p),
        ("out_stride_token", c_int64),
        ("out_stride_head", c_int64),
        ("out_lse", c_void_p),
        ("out_lse_stride_head", c_int64),
        ("out_lse_stride_token", c_int64),
    ]


class AttentionBackwardParams(Structure):
    _fields_ = [
        ("features", c_uint64),
        ("batch", c_int32),
        ("num_heads_q", c_int32),
        ("num_heads_kv", c_int32),
        ("head_dim", c_int32),
        ("head_dim_v", c_int32),
        ("dtype", c_int32),
        ("total_q", c_int64),
        ("total_k", c_int64),
        ("max_seqlen_q", c_int32),
        ("max_seqlen_k", c_int32),
        ("cu_seqlens_q", c_void_p),
        ("cu_seqlens_k", c_void_p),
        ("q", c_void_p),
        ("q_stride_token", c_int64),
        ("q_stride_head", c_int64),
        ("k", c_void_p),
        ("k_stride_token", c_int64),
        ("k_stride_head", c_int64),
        ("v", c_void_p),
        ("v_stride_token", c_int64),
        ("v_stride_head", c_int64),
        ("out", c_void_p),
        ("out_stride_token", c_int64),
        ("out_stride_head", c_int64),
        ("lse", c_void_p),
        ("lse_stride_head", c_int64),
        ("d_out", c_void_p),
        ("d_out_stride_token", c_int64),
        ("d_out_stride_head", c_int64),
        ("causal", c_int32),
        ("window_left", c_int32),
        ("window_right", c_int32),
        ("softmax_scale", c_float),
        ("softcap", c_float),
        ("alibi_sqrt", c_int32),
        ("alibi_slopes", c_void_p),
        ("alibi_stride_batch", c_int64),
        ("sinks", c_void_p),
        ("p_dropout", c_float),
        ("reserved", c_uint32),
        ("dropout_seed", c_uint64),
        ("dropout_offset", c_uint64),
        ("dq", c_void_p),
        ("dq_stride_token", c_int64),
        ("dq_stride_head", c_int64),
        ("dk", c_void_p),
        ("dk_stride_token", c_int64),
        ("dk_stride_head", c_int64),
        ("dv", c_void_p),
        ("dv_stride_token", c_int64),
        ("dv_stride_head", c_int64),
        ("dsinks", c_void_p),
    ]


class KvMoveParams(Structure):
    _fields_ = [
        ("features", c_uint64),
        ("num_heads_kv", c_int32),
        ("head_dim", c_int32),
        ("head_dim_v", c_int32),
        ("block_size", c_int32),
        ("num_blocks_src", c_int32),
        ("num_blocks_dst", c_int32),
        ("dtype_k", c_int32),
        ("dtype_v", c_int32),
        ("dtype_out", c_int32),
        ("reserved", c_int32),
        ("k_src", c_void_p),
        ("v_src", c_void_p),
        ("k_src_stride_block", c_int64),
        ("k_src_stride_token", c_int64),
        ("k_src_stride_head", c_int64),
        ("v_src_stride_block", c_int64),
        ("v_src_stride_token", c_int64),
        ("v_src_stride_head", c_int64),
        ("k_dst", c_void_p),
        ("v_dst", c_void_p),
        ("k_dst_stride_block", c_int64),
        ("k_dst_stride_token", c_int64),
        ("k_dst_stride_head", c_int64),
        ("v_dst_stride_block", c_int64),
        ("v_dst_stride_token", c_int64),
        ("v_dst_stride_head", c_int64),
        ("block_pairs", c_void_p),
        ("num_pairs", c_int64),
        ("block_table", c_void_p),
        ("block_table_stride", c_int64),
        ("cu_seqlens", c_void_p),
        ("seq_starts", c_void_p),
        ("total_k", c_int64),
        ("batch", c_int32),
        ("reserved2", c_int32),
        ("k_descale", c_void_p),
        ("v_descale", c_void_p),
    ]


class _OpParamsUnion(Union):
    _fields_ = [
        ("attention", AttentionParams),
        ("kv_append", KvAppendParams),
        ("merge_states", MergeStatesParams),
        ("attention_backward", AttentionBackwardParams),
        ("kv_move", KvMoveParams),
    ]


class OpParams(Structure):
    _anonymous_ = ("u",)
    _fields_ = [
        ("op", c_int32),
        ("u", _OpParamsUnion),
    ]


class Numerics(Structure):
    _fields_ = [
        ("p_type", c_int32),
        ("acc_type", c_int32),
        ("exp_rel_err", c_double),
        ("mma_roundoff", c_double),
        ("p_scale", c_double),
        ("head_grad_type", c_int32),
        ("input_roundoff", c_double),
    ]


class KernelMessage(Structure):
    _fields_ = [
        ("text", c_char * 256),
    ]


class ReturnedOutputs(Structure):
    _fields_ = [
        ("out", c_void_p),
        ("out_stride_token", c_int64),
        ("out_stride_head", c_int64),
        ("out_stride_channel", c_int64),
        ("lse", c_void_p),
        ("lse_stride_head", c_int64),
        ("lse_stride_token", c_int64),
        ("lse_factor", c_float),
    ]


class LaunchContext(Structure):
    _fields_ = [
        ("stream", c_void_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("num_threads", c_int32),
        ("device_ordinal", c_int32),
        ("compute_capability", c_int32),
        ("multiprocessors", c_int32),
        ("returned", c_void_p),
    ]


class Tile(Structure):
    _fields_ = [
        ("tokens", c_int32),
        ("heads", c_int32),
        ("rows", c_int32),
        ("keys", c_int32),
    ]


class Kernel(Structure):
    _fields_ = [
        ("abi_version", c_uint32),
        ("flags", c_uint32),
        ("name", c_char_p),
        ("summary", c_char_p),
        ("shapes", c_char_p),
        ("op", c_int32),
        ("device", c_int32),
        ("min_compute_capability", c_int32),
        ("features", c_uint64),
        ("supports", c_void_p),
        ("numerics", c_void_p),
        ("workspace_bytes", c_void_p),
        ("plan", c_void_p),
        ("launch", c_void_p),
        ("tile", c_void_p),
        ("instances", c_char_p),
    ]


class Plugin(Structure):
    _fields_ = [
        ("magic", c_uint64),
        ("abi_version", c_uint32),
        ("struct_bytes", c_uint32 * 10),
        ("num_kernels", c_uint32),
        ("kernels", c_void_p),
    ]


#: The structs whose sizes a plug-in tells, in their order.
PLUGIN_STRUCTS = (Kernel, OpParams, AttentionParams, KvAppendParams, MergeStatesParams,
                  AttentionBackwardParams, LaunchContext, KernelMessage, Numerics, KvMoveParams)
