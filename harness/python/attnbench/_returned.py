"""Outputs that a launch returns in place of writing them: where they lie, in the words of the contract."""
import ctypes
import math
import sys

from ._call import DLTensor, Tensor
from ._contract import DType, ReturnedOutputs

class WrongOutput(TypeError):
    """A launch returned something else than its outputs."""


#: What libraries call the types of outputs. NumPy has no bf16: an array of its bits is taken, or of ml_dtypes ("<V2").
_NAMES = {DType.BF16: ("bfloat16", "<u2", "<V2"), DType.FP16: ("float16", "<f2"), DType.FP32: ("float32", "<f4")}
_WORDS = {"<f2": "float16", "<f4": "float32", "<f8": "float64", "<u2": "uint16"}
#: DLPack's (code, bits) of these types.
_DLPACK_NAMES = {(4, 16): "bfloat16", (2, 16): "float16", (2, 32): "float32"}


def _dense(shape):
    return tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))


def _of_interface(interface, device):
    pointer, read_only = interface["data"]
    shape, size = tuple(interface["shape"]), int(interface["typestr"][2:])
    if read_only:
        raise WrongOutput("a read-only array; return one of its own memory")
    strides = interface.get("strides")
    return pointer, shape, _dense(shape) if strides is None else tuple(s // size for s in strides), interface["typestr"], device


def _of_dlpack(value):
    capsule = value.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    t = DLTensor.from_address(get(capsule, b"dltensor"))
    shape = tuple(t.shape[:t.ndim])
    strides = tuple(t.strides[:t.ndim]) if t.strides else _dense(shape)
    device = "cpu" if t.device_type == 1 else f"cuda:{t.device_id}"
    return (t.data or 0) + t.byte_offset, shape, strides, _DLPACK_NAMES.get((t.code, t.bits), f"DLPack type {t.code}.{t.bits}"), device


def _place(value):
    """(pointer, shape, strides in elements, name of the type, device) of a tensor of any library."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise WrongOutput(f"a {type(value).__name__}, a kind of tensor that may compute later; return a plain torch.Tensor")
        if value.layout is not torch.strided:
            raise WrongOutput(f"a tensor of layout {value.layout}; return a dense one")
        return value.data_ptr(), tuple(value.shape), value.stride(), str(value.dtype)[6:], str(value.device)
    for name, device in (("__array_interface__", "cpu"), ("__cuda_array_interface__", "cuda")):
        interface = getattr(value, name, None)
        if interface is not None:
            return _of_interface(interface, device)
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(value)
    raise WrongOutput(f"{type(value).__name__}; a tensor is required")


class Outputs:
    """Fills the ReturnedOutputs of one call."""

    def __init__(self, kernel, call):
        self.kernel, self.call = kernel, call
        self.inputs = {v.pointer: n for n, v in vars(call).items()
                       if isinstance(v, Tensor) and v.pointer and n not in ("out", "lse", "probs", "k_cache", "v_cache")}

    def checked(self, what, value, view, shape):
        """The place of the returned tensor; None if it is the given one."""
        try:
            pointer, got, strides, dtype, device = _place(value)
        except WrongOutput as error:
            raise WrongOutput(f"{self.kernel.name} returned {what} as {error}") from None
        if got != shape:
            raise WrongOutput(f"{self.kernel.name} returned {what} of shape {got}; {shape} required")
        if dtype not in _NAMES[view.dtype]:
            bits = ", in NumPy its bits as uint16," if view.dtype == DType.BF16 else ""
            raise WrongOutput(f"{self.kernel.name} returned {what} in {_WORDS.get(dtype, dtype)}; {_NAMES[view.dtype][0]}{bits} required")
        where = f"cuda:{self.call.device_index}" if self.call.device == "cuda" else "cpu"
        if device not in (where, self.call.device):
            raise WrongOutput(f"{self.kernel.name} returned {what} on {device}; {where} required")
        if pointer in self.inputs:
            raise WrongOutput(f"{self.kernel.name} returned {what} in the memory of its input {self.inputs[pointer]}")
        return None if pointer == view.pointer else (pointer, strides)

    def fill(self, result, address):
        call, kernel, to = self.call, self.kernel, ReturnedOutputs.from_address(address)
        to.lse_factor = math.log(2) if kernel.lse_base2 else 1
        if not kernel.returns:  # it wrote the LSE in base 2
            to.lse, to.lse_stride_head, to.lse_stride_token = call.lse.pointer, call.lse.strides[0], 1
            return
        out, lse = result if isinstance(result, (tuple, list)) and len(result) == 2 else (result, None)
        place = self.checked("O", out, call.out, call.out.shape)
        if place is not None:
            to.out, (to.out_stride_token, to.out_stride_head, to.out_stride_channel) = place
        if kernel.gives_lse:
            if lse is None:
                raise WrongOutput(f'{kernel.name} returned no LSE; return (O, LSE), or declare lse="none"')
            heads, rows = call.lse.shape
            place = self.checked("the LSE", lse, call.lse, (rows, heads) if kernel.lse_token_major else (heads, rows))
            pointer, strides = place or (call.lse.pointer, call.lse.strides)
            to.lse_stride_token, to.lse_stride_head = strides if kernel.lse_token_major else strides[::-1]
            to.lse = pointer
