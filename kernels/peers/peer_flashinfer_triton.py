"""FlashInfer's kernels in Triton (flashinfer.triton.cascade), which merge states, without what else its import needs."""
import alone
import attnbench as ab

cascade, = alone.files("pip install flashinfer-python", "flashinfer.triton.cascade", also=("flashinfer.triton.kernels.cascade",))

# The source: LSEs in base 2, tensors without gaps, (rows, states, heads, channels). States without keys have an LSE of -inf.
_MERGE = {"device": alone.DEVICE, "serves": "merge", "padding": "finite"}


def _launch(c, merge):
    out, out_lse = c.torch("out out_lse")
    if not c.has("lse_base2") or c.dtype_partial != c.dtype_out:
        raise ab.Unsupported("LSEs in base 2, and states in the type of O, required")

    def launch():
        merged, lse = merge(*c.torch("partial_out partial_lse"))
        out.copy_(merged)
        out_lse.copy_(lse.T)
    return launch


@ab.merge_states("bf16 fp16 fp32 lse_base2", **_MERGE)
def flashinfer_triton_merge_state(c):
    """FlashInfer: triton.cascade.merge_state"""
    if c.num_states != 2:
        raise ab.Unsupported("two states required")
    return _launch(c, lambda o, lse: cascade.merge_state(*(x[n].contiguous() for n in (0, 1) for x in (o, lse))))


@ab.merge_states("bf16 fp16 fp32 lse_base2", **_MERGE)
def flashinfer_triton_merge_states(c):
    """FlashInfer: triton.cascade.merge_states"""
    return _launch(c, lambda o, lse: cascade.merge_states(o.transpose(0, 1).contiguous(), lse.transpose(0, 1).contiguous()))


@ab.merge_states("bf16 fp16 fp32 lse_base2 ragged_states", **_MERGE)
def flashinfer_triton_merge_ragged(c):
    """FlashInfer: triton.cascade.variable_length_merge_states"""
    if not c.has("ragged_states"):
        raise ab.Unsupported("rows of different numbers of states required")
    first = c.torch("state_indptr")
    return _launch(c, lambda o, lse: cascade.variable_length_merge_states(o.contiguous(), lse.contiguous(), first))
