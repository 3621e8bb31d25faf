"""A compiled kernel, called from Python: both together show what the door for Python costs.

    SAME_KERNEL=example.so attnbench run quickstart --plugin example.so --plugin tests/cost/same_kernel.py

Both kernels launch the same code of the plug-in example.so (kernels/examples/cpu or cuda), the second through a
launch in Python. On a GPU, where host time is hidden, they take the same time. On the cpu device the second takes
longer by what Python adds to a launch.
"""
import ctypes
import os

import attnbench as ab
from attnbench import _contract as contract

_library = ctypes.CDLL(os.environ["SAME_KERNEL"])
_plugin = contract.Plugin.in_dll(_library, "attnbench_plugin")
_kernel = contract.Kernel.from_address(ctypes.c_void_p.from_address(_plugin.kernels).value)
_launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(_kernel.launch)


@ab.attention("packed paged causal bf16 fp16", device=("cpu", "cuda")[_kernel.device], p="fp32", acc="fp32",
              exp_rel_err=2**-22, deterministic=True, batch_invariant=True)
def through_python(c):
    """the attention kernel of $SAME_KERNEL"""
    op = contract.OpParams(op=_kernel.op, attention=c._params)
    context = contract.LaunchContext(stream=c.stream, num_threads=c.num_threads, device_ordinal=c.device_index,
                                     compute_capability=c.compute_capability, multiprocessors=c.multiprocessors)
    arguments = ctypes.byref(op), ctypes.byref(context), None

    def launch():
        if _launch(*arguments) != 0:
            raise RuntimeError("the launch was refused")

    return launch
