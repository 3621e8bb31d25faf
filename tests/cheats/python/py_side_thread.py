"""Computes half of the heads in a thread after return, as work on a side stream that is not joined.
Source: ScalingIntelligence/KernelBench #82 (work that the clock does not wait for)."""
import threading

from numpy_attention import cheat, compute, half


@cheat
def py_side_thread(c):
    def launch():
        threading.Thread(target=compute, args=(c, range(c.num_heads_q // 2, c.num_heads_q)), daemon=True).start()
        half(c)
    return launch
