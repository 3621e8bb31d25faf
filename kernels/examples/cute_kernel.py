"""Packed attention in CuTe DSL: a warp for each query row and head, in float32 (harness/python/README.md)."""
import attnbench as ab

cute = ab.need("cutlass.cute", "pip install 'nvidia-cutlass-dsl[cu13]'")
from cuda.bindings.driver import CUstream
from cutlass import Constexpr, Float32, Int32, const_expr, range_constexpr
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def _attend(q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, out: cute.Tensor, lse: cute.Tensor, cu_q: cute.Tensor,
            cu_k: cute.Tensor, scale: Float32, group: Int32, causal: Constexpr, width: Constexpr):
    """One query of one head, a key at a time. A lane of the warp has `width` of its channels: lane, lane + 32, ..."""
    i, head, b = cute.arch.block_idx()
    lane = cute.arch.lane_idx()
    q_begin, k_begin = cu_q[b], cu_k[b]
    len_q, len_k = cu_q[b + 1] - q_begin, cu_k[b + 1] - k_begin
    if i < len_q:
        row = q_begin + i
        end = len_k
        if const_expr(causal):  # query i sees keys up to i + len_k - len_q: the last query sees the last key
            end = i + len_k - len_q + 1
        query = cute.make_rmem_tensor((width,), Float32)
        acc = cute.make_rmem_tensor((width,), Float32)
        for n in range_constexpr(width):  # unrolled while compiling
            query[n] = q[row, head, 32 * n + lane].to(Float32)
            acc[n] = Float32(0)
        top = -Float32.inf  # largest score so far
        total = Float32(0)
        for j in range(end):  # a loop of the kernel; rows past the last key may hold NaN, and are not read
            s = Float32(0)
            for n in range_constexpr(width):
                s += query[n] * k[k_begin + j, head // group, 32 * n + lane].to(Float32)
            s = cute.arch.warp_reduction_sum(s) * scale
            new_top = cute.arch.fmax(top, s)
            p = cute.math.exp(s - new_top)
            kept = cute.math.exp(top - new_top)
            for n in range_constexpr(width):
                acc[n] = acc[n] * kept + p * v[k_begin + j, head // group, 32 * n + lane].to(Float32)
            total = total * kept + p
            top = new_top

        # A row that sees no key: O = 0, LSE = -inf. The test is total == 0, so a NaN that was read shows in O.
        divisor = total
        if total == Float32(0):
            divisor = Float32(1)
        for n in range_constexpr(width):
            out[row, head, 32 * n + lane] = (acc[n] / divisor).to(out.element_type)
        if lane == 0:
            lse[head, row] = top + cute.math.log(total)


@cute.jit
def _launch(q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, out: cute.Tensor, lse: cute.Tensor, cu_q: cute.Tensor,
            cu_k: cute.Tensor, scale: Float32, rows: Int32, stream: CUstream, causal: Constexpr, width: Constexpr):
    """A block for each query of the longest sequence (`rows`), head and sequence."""
    group = q.shape[1] // k.shape[1]  # query head h reads KV head h // group
    _attend(q, k, v, out, lse, cu_q, cu_k, scale, group, causal, width).launch(
        grid=(rows, q.shape[1], cu_q.shape[0] - 1), block=(32, 1, 1), stream=stream)


_compiled = {}  # by type, mask and head_dim; lengths, heads and strides are arguments


# `features` says what a launch may use, in names of `attnbench kernels`; other cases are skipped. P is not rounded
# and sums are float32. exp is expf of CUDA, with an error of 2 units in the last place (CUDA programming guide).
@ab.attention(features="packed causal bf16 fp16", head_dim=range(32, 257, 32), p="fp32", acc="fp32", exp_rel_err=2**-22,
              min_compute_capability=80, deterministic=True, batch_invariant=True)
def cute_rows(c):
    """packed sequences in CuTe DSL, a warp for each query row and head"""
    # This part runs once per case and is not timed. A launch may be repeated with shorter sequences, as a CUDA graph
    # is, so the kernel reads lengths itself; c.max_seqlen_q holds.
    if c.batch > 65535:
        raise ab.Unsupported(f"at most 65535 sequences required, given {c.batch}")  # the case is skipped
    if c.max_seqlen_q == 0:
        return lambda: None
    # Shapes and strides are arguments, but for the last stride, which is 1. DLPack needs no PyTorch.
    tensors = [from_dlpack(t).mark_layout_dynamic(len(t.shape) - 1)
               for t in (c.q, c.k, c.v, c.out, c.lse, c.cu_seqlens_q, c.cu_seqlens_k)]
    given = (*tensors, Float32(c.softmax_scale), Int32(c.max_seqlen_q), CUstream(c.stream))
    form = (c.dtype_q, bool(c.causal), c.head_dim)
    if form not in _compiled:
        _compiled[form] = cute.compile(_launch, *given, bool(c.causal), c.head_dim // 32)
    attend = _compiled[form]
    return lambda: attend(*given)  # This part is timed, on the stream of the harness.
