"""Sets q to zeros, so that every later launch would compute something easier. Its own result is right.
Source: ScalingIntelligence/KernelBench #82 (kernels that change their inputs)."""
from numpy_attention import cheat, compute


@cheat
def py_changes_inputs(c):
    def launch():
        compute(c)
        q = c.numpy("q")
        q[...] = q & 0x8000
    return launch
