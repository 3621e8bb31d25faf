"""Numbers and names of the contract of kernels, kernels/contract/*.h. Written by scripts/python_structs.py."""
import enum

ABI_VERSION = 10
PLUGIN_MAGIC = 0x6e69676c706e7461


class _Names(enum.IntEnum):
    """Prints as its name."""

    def __str__(self):
        return self.name.lower()


class DType(_Names):
    BF16 = 0
    FP16 = 1
    FP32 = 2
    E4M3 = 3
    INT8 = 4
    E5M2 = 5
    E2M1X2 = 6


class RotaryQ(_Names):
    DIAGONAL = 0
    FROM_CACHE_SEQLENS = 1
    AT_CACHE_SEQLENS = 2


class Feature(enum.IntFlag):
    PACKED_KV = 1 << 0
    PAGED_KV = 1 << 1
    CONTIGUOUS_KV = 1 << 2
    CAUSAL = 1 << 3
    WINDOW = 1 << 4
    SOFTCAP = 1 << 5
    ALIBI = 1 << 6
    SINKS = 1 << 7
    BF16 = 1 << 8
    FP16 = 1 << 9
    FP32 = 1 << 10
    E4M3_KV = 1 << 11
    E4M3_Q = 1 << 12
    INT8_K = 1 << 13
    INT8_V = 1 << 14
    INT8_Q = 1 << 15
    PROBS = 1 << 16
    DROPOUT = 1 << 17
    ROTARY = 1 << 18
    APPEND = 1 << 19
    SPLIT_KV = 1 << 20
    PARTIAL_KV = 1 << 21
    HND = 1 << 22
    K_TOKEN_SCALES = 1 << 23
    V_TOKEN_SCALES = 1 << 24
    HEAD_DIM_V = 1 << 25
    V_IS_K = 1 << 26
    ROTARY_Q = 1 << 27
    ATTENTION_CHUNK = 1 << 28
    LSE_BASE2 = 1 << 29
    LSE_TOKEN_MAJOR = 1 << 30
    RAGGED_STATES = 1 << 31
    INF_LSE = 1 << 32
    TOP_LEFT = 1 << 33
    V_CHANNEL_SCALES = 1 << 34
    APPEND_QUANTISED = 1 << 35
    E4M3_OUT = 1 << 36
    ONE_ROW = 1 << 37
    CUSTOM_MASK = 1 << 38
    TOPK_INDICES = 1 << 39
    QV = 1 << 40
    SEQUSED_Q = 1 << 41
    PAGED_BATCH_IDX = 1 << 42
    PAGED_LEFTPAD = 1 << 43
    ROTARY_CACHED = 1 << 44
    E5M2_KV = 1 << 45
    QUERY_OUT = 1 << 46
    POSITIONS64 = 1 << 47
    GATHER = 1 << 48
    SEQ_STARTS = 1 << 49
    E2M1_KV = 1 << 50
    BLOCK_SCALES = 1 << 51
    K_TAIL = 1 << 52
    DESCALE_ROWS = 1 << 53


class Op(_Names):
    ATTENTION = 0
    KV_APPEND = 1
    MERGE_STATES = 2
    ATTENTION_BACKWARD = 3
    KV_MOVE = 4


class DeviceKind(_Names):
    CPU = 0
    CUDA = 1


class KernelStatus(_Names):
    OK = 0
    UNSUPPORTED = 1
    BAD_ARGUMENT = 2
    DEVICE_ERROR = 3


class KernelFlag(enum.IntFlag):
    DETERMINISTIC = 1 << 0
    BATCH_INVARIANT = 1 << 1
    PAGING_INVARIANT = 1 << 6
    RETURNS_OUTPUTS = 1 << 2
    NO_LSE = 1 << 3
    FINITE_PADDING = 1 << 4
    INF_EMPTY_LSE = 1 << 7
    HOST_LENGTHS = 1 << 5
    SERVES_DECODE = 1 << 8
    SERVES_PREFILL = 1 << 9
    SERVES_APPEND = 1 << 10
    NO_EMPTY_ROWS = 1 << 11
    NO_IDLE_SEQUENCES = 1 << 12
    NO_SHORT_KV = 1 << 13
    DENSE_INPUTS = 1 << 14


#: Features by the names of `attnbench kernels`.
FEATURES = {
    "packed": Feature.PACKED_KV,
    "paged": Feature.PAGED_KV,
    "contiguous": Feature.CONTIGUOUS_KV,
    "causal": Feature.CAUSAL,
    "window": Feature.WINDOW,
    "softcap": Feature.SOFTCAP,
    "alibi": Feature.ALIBI,
    "sinks": Feature.SINKS,
    "bf16": Feature.BF16,
    "fp16": Feature.FP16,
    "fp32": Feature.FP32,
    "e4m3_kv": Feature.E4M3_KV,
    "e4m3_q": Feature.E4M3_Q,
    "int8_k": Feature.INT8_K,
    "int8_v": Feature.INT8_V,
    "int8_q": Feature.INT8_Q,
    "probs": Feature.PROBS,
    "dropout": Feature.DROPOUT,
    "rotary": Feature.ROTARY,
    "append": Feature.APPEND,
    "num_splits": Feature.SPLIT_KV,
    "seqused_k": Feature.PARTIAL_KV,
    "hnd": Feature.HND,
    "k_token_scales": Feature.K_TOKEN_SCALES,
    "v_token_scales": Feature.V_TOKEN_SCALES,
    "head_dim_v": Feature.HEAD_DIM_V,
    "v_is_k_view": Feature.V_IS_K,
    "rotary_q": Feature.ROTARY_Q,
    "attention_chunk": Feature.ATTENTION_CHUNK,
    "lse_base2": Feature.LSE_BASE2,
    "lse_token_major": Feature.LSE_TOKEN_MAJOR,
    "ragged_states": Feature.RAGGED_STATES,
    "inf_lse": Feature.INF_LSE,
    "top_left": Feature.TOP_LEFT,
    "v_channel_scales": Feature.V_CHANNEL_SCALES,
    "append_quantised": Feature.APPEND_QUANTISED,
    "e4m3_out": Feature.E4M3_OUT,
    "one_row": Feature.ONE_ROW,
    "custom_mask": Feature.CUSTOM_MASK,
    "topk_indices": Feature.TOPK_INDICES,
    "qv": Feature.QV,
    "seqused_q": Feature.SEQUSED_Q,
    "paged_batch_idx": Feature.PAGED_BATCH_IDX,
    "paged_leftpad": Feature.PAGED_LEFTPAD,
    "rotary_cached": Feature.ROTARY_CACHED,
    "e5m2_kv": Feature.E5M2_KV,
    "query_out": Feature.QUERY_OUT,
    "positions64": Feature.POSITIONS64,
    "gather": Feature.GATHER,
    "seq_starts": Feature.SEQ_STARTS,
    "e2m1_kv": Feature.E2M1_KV,
    "block_scales": Feature.BLOCK_SCALES,
    "k_tail": Feature.K_TAIL,
    "descale_rows": Feature.DESCALE_ROWS,
}
