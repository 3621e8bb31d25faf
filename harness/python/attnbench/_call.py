"""What a kernel is given: the parameters of a launch, and views of its tensors. Nothing is copied."""
from __future__ import annotations

import ctypes
import difflib
import math
from typing import Any

from ._contract import FEATURES, DType, Feature, Op


class Unsupported(Exception):
    """Raised by a kernel that cannot do a case: the case is skipped, and its report has these words."""


#: Per type: bytes, DLPack code and bits, NumPy's type. Float types that NumPy lacks are unsigned integers of
#: their bits there; DLPack calls e4m3 and e5m2 uint8, as several consumers do not know them.
_TYPES = {
    DType.BF16: (2, (4, 16), "<u2"),
    DType.FP16: (2, (2, 16), "<f2"),
    DType.FP32: (4, (2, 32), "<f4"),
    DType.E4M3: (1, (1, 8), "|u1"),
    DType.E5M2: (1, (1, 8), "|u1"),
    DType.E2M1X2: (1, (1, 8), "|u1"),
    DType.INT8: (1, (0, 8), "|i1"),
    "int32": (4, (0, 32), "<i4"),
    "int64": (8, (0, 64), "<i8"),
    "uint8": (1, (1, 8), "|u1"),
}


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


# A consumer ends its view at any moment, also while an exception is on its way, when Python code must not run.
# So a view is one block of malloc, and free() is its deleter: the tensor's own memory is the harness's.
_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_FREE = ctypes.cast(_libc.free, ctypes.c_void_p)
_CAPSULE = b"dltensor"
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Tensor:
    """A view of a tensor of the launch. `shape` is in elements, `strides` too; the last stride is 1.

    It converts by DLPack (torch.from_dlpack, cupy.from_dlpack), by __cuda_array_interface__, and on the cpu
    device by __array_interface__ (numpy.asarray). NumPy lacks bf16, e4m3, e5m2 and e2m1: arrays of them hold their
    bits. An index gives numbers instead, c.q[first:end, head] as float32, and takes numbers: c.out[row] = values.
    """

    def __init__(self, name, pointer, shape, strides, dtype, device, device_index):
        self.name, self.pointer, self.dtype = name, pointer or 0, dtype
        self.shape, self.strides = tuple(shape), tuple(strides)
        self.device, self.device_index = device, device_index
        self.whole = self._torch = None  #: the tensor of which this one has the first channels; what torch() returned

    def __repr__(self):
        return f"Tensor({self.name}, shape={self.shape}, dtype={self.dtype}, {self.device})"

    def __dlpack_device__(self):
        return (2, self.device_index) if self.device == "cuda" else (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy:
            raise BufferError(f"{self.name}: a copy is not what a kernel wants")
        code, bits = _TYPES[self.dtype][1]
        ndim = len(self.shape)
        size = ctypes.sizeof(_DLManagedTensor)
        block = _libc.malloc(size + 16 * ndim)
        extents = (ctypes.c_int64 * (2 * ndim)).from_address(block + size)
        extents[:] = (*self.shape, *self.strides)
        shape, strides = (ctypes.cast(block + size + 8 * n, ctypes.POINTER(ctypes.c_int64)) for n in (0, ndim))
        device_type, device_id = self.__dlpack_device__()
        managed = _DLManagedTensor.from_address(block)
        managed.tensor = DLTensor(self.pointer, device_type, device_id, ndim, code, bits, 1, shape, strides, 0)
        managed.manager_ctx, managed.deleter = None, _FREE
        return _new_capsule(block, _CAPSULE, None)

    def _interface(self):
        size, _, typestr = _TYPES[self.dtype]
        return {"data": (self.pointer, False), "shape": self.shape, "strides": tuple(s * size for s in self.strides),
                "typestr": typestr, "version": 3}

    def __getattr__(self, name):
        if name == "__array_interface__" and self.device == "cpu":
            return self._interface()
        if name == "__cuda_array_interface__" and self.device == "cuda":
            return self._interface()
        raise AttributeError(name)

    def numpy(self) -> Any:
        """The tensor as a NumPy array (cpu device): the same memory."""
        import numpy
        if self.device != "cpu":
            raise TypeError(f"{self.name} is in GPU memory; NumPy kernels are for the cpu device")
        if 0 in self.shape:
            return numpy.zeros(self.shape, _TYPES[self.dtype][2])
        return numpy.asarray(self)

    def __getitem__(self, index: Any) -> Any:
        """Numbers (cpu device). Float types and int8: a new array of float32. Lengths and tables: a view."""
        import numpy
        bits = self.numpy()[index]
        if self.dtype == DType.BF16:
            return (bits.astype(numpy.uint32) << 16).view(numpy.float32)
        if self.dtype == DType.E4M3:
            return _e4m3_table()[bits]
        if self.dtype == DType.E5M2:
            return (bits.astype(numpy.uint16) << 8).view(numpy.float16).astype(numpy.float32)
        if self.dtype == DType.E2M1X2:  # two numbers per element, in the last dimension
            pairs = _e2m1_numbers()[numpy.stack([bits & 15, bits >> 4], -1)]
            return pairs.reshape(*pairs.shape[:-2], -1)
        return bits.astype(numpy.float32) if isinstance(self.dtype, DType) else bits

    def __setitem__(self, index: Any, values: Any) -> None:
        """Writes float numbers, rounded to nearest, ties to even (cpu device; bf16, fp16 and fp32)."""
        import numpy
        values = numpy.asarray(values, numpy.float32)
        if self.dtype == DType.BF16:
            bits = numpy.ascontiguousarray(values).view(numpy.uint32).reshape(values.shape)
            rounded = ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)
            self.numpy()[index] = numpy.where(numpy.isnan(values), numpy.uint16(0x7fc0), rounded)
        elif self.dtype in (DType.FP16, DType.FP32):
            self.numpy()[index] = values
        else:
            raise TypeError(f"{self.name}: {self.dtype} is not written by index; write into numpy(), its bits")

    def torch(self) -> Any:
        """The tensor as a torch.Tensor: the same memory."""
        import torch
        if self.whole is not None:  # Triton's interpreter writes storages back if two have one address
            return self.whole.torch()[..., :self.shape[-1]]
        if self._torch is not None:
            return self._torch
        tensor = torch.from_dlpack(self)
        kinds = {DType.E4M3: "float8_e4m3fn", DType.E5M2: "float8_e5m2", DType.E2M1X2: "float4_e2m1fn_x2"}
        kind = getattr(torch, kinds.get(self.dtype, ""), None)  # torch before 2.8 has no e2m1: uint8 then
        self._torch = tensor if kind is None else tensor.view(kind)
        return self._torch

    def cupy(self) -> Any:
        """The tensor as a cupy.ndarray: the same memory."""
        import cupy
        return cupy.from_dlpack(self)

    def jax(self) -> Any:
        """The tensor as a jax.Array (cpu device): the same memory. It may have other numbers in each launch."""
        import jax
        if self.device != "cpu":
            raise Unsupported("JAX launches on a stream of its own, not on the one that is timed; its kernels are for the cpu device")
        dense = tuple(math.prod(self.shape[i + 1:]) for i in range(len(self.shape)))
        if self.strides != dense and 0 not in self.shape:
            raise Unsupported(f"{self.name} with strides {self.strides}; JAX takes dense tensors only")
        return jax.dlpack.from_dlpack(self, copy=False)


#: Tensors that every launch of their op has, though they may be empty.
_ALWAYS = {"q", "k", "v", "out", "lse", "key", "value", "partial_out", "partial_lse", "out_lse", "d_out", "dq", "dk", "dv", "k_src", "k_dst"}


def _e4m3_table():
    import numpy
    bits = numpy.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    value = numpy.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0**(exponent - 10.0))
    value[(bits & 0x7f) == 0x7f] = numpy.nan
    return numpy.where(bits >= 128, -value, value).astype(numpy.float32)


def _e2m1_numbers():
    import numpy
    values = numpy.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    return numpy.concatenate([values, -values])


class Call:
    """One launch: every field of kernels/contract/attention_params.h (or of kv_append, merge_states,
    attention_backward, kv_move) by its name.

    Fields that are pointers are Tensors, or None if the launch does not use them. Further fields: `op`,
    `device` ("cpu" or "cuda"), `device_index`, `stream` (a cudaStream_t as a number), `num_threads`,
    `compute_capability`, `multiprocessors`, `total_k` (rows of packed K and V).

    A kernel sees it once per case. Tensors hold poison then, and their numbers only when the launch runs;
    lengths and block tables are in place.
    """

    def __init__(self, op_params, context, read):
        self.op = Op(op_params.op).name.lower()
        params = getattr(op_params, self.op)
        self._params, self._read = params, read
        self.device = "cuda" if context.compute_capability else "cpu"
        self.device_index = context.device_ordinal
        self.stream = context.stream or 0
        self.num_threads = context.num_threads
        self.compute_capability, self.multiprocessors = context.compute_capability, context.multiprocessors
        for name, declared in params._fields_:
            value = getattr(params, name)
            if name.startswith("dtype"):
                value = DType(value)
            if declared is not ctypes.c_void_p and not isinstance(value, ctypes.Structure):
                setattr(self, name, value)
        self.features = Feature(params.features)
        {"attention": self._attention, "kv_append": self._kv_append, "merge_states": self._merge_states,
         "attention_backward": self._attention_backward, "kv_move": self._kv_move}[self.op]()

    def __getattr__(self, name: str) -> Any:
        near = difflib.get_close_matches(name, vars(self), 1)
        raise AttributeError(f"a call of {vars(self).get('op', 'an op')} has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))

    def has(self, feature: str | Feature) -> bool:
        """Whether the launch uses the feature: Feature.CAUSAL, or its name in `attnbench kernels`, "causal"."""
        if isinstance(feature, str) and feature not in FEATURES:
            raise ValueError(f"has({feature!r}): one of {', '.join(sorted(FEATURES))} required")
        return bool(self.features & (FEATURES[feature] if isinstance(feature, str) else feature))

    def _view(self, name, shape, strides, dtype, field=None, of=None, used=False):
        pointer = getattr(of or self._params, field or name)
        there = pointer or name in _ALWAYS or (used and 0 in shape)
        view = Tensor(name, pointer, shape, strides, dtype, self.device, self.device_index) if there else None
        setattr(self, name, view)

    def _row(self, name, count, dtype="int32", **where):
        self._view(name, (count,), (1,), dtype, **where)

    def _int32(self, pointer, index):
        value = ctypes.c_int32()
        if self._read(ctypes.byref(value), pointer + 4 * index, 4) != 0:
            raise RuntimeError("device memory cannot be read: the device has failed")
        return value.value

    def _cache(self, name, kind, channels, dtype, field=None):
        """K, V, a cache of them or their scales: packed, paged or contiguous, as the launch has it."""
        p = self._params
        if dtype == DType.E2M1X2:
            channels //= 2
        token, head, block = (getattr(p, f"{kind}_stride_{s}") for s in ("token", "head", "block"))
        heads = p.num_heads_kv
        if self.features & Feature.PACKED_KV:
            self._view(name, (self.total_k, heads, channels), (token, head, 1), dtype, field)
        elif self.features & Feature.CONTIGUOUS_KV:
            self._view(name, (p.num_blocks, p.cache_capacity, heads, channels), (block, token, head, 1), dtype, field)
        elif self.features & Feature.HND:
            self._view(name, (p.num_blocks, heads, p.block_size, channels), (block, head, token, 1), dtype, field)
        else:
            self._view(name, (p.num_blocks, p.block_size, heads, channels), (block, token, head, 1), dtype, field)

    def _block_scales(self, stored, dv):
        """Scales for blocks of channels. k_rows: rows of fp8_ds_mla as bytes, of which k, k_block_scale and k_tail are parts."""
        p, per = self._params, max(1, self._params.scale_block)
        self._cache("k_block_scale", "k_block_scale", stored // per, self.dtype_block_scale)
        self._cache("v_block_scale", "v_block_scale", dv // per, self.dtype_block_scale)
        self._cache("k_tail", "k_tail", p.head_dim - stored, DType.BF16)
        self._cache("k_rows", "k", (p.k_tail or 0) - (p.k or 0) + 2 * (p.head_dim - stored), "uint8", "k" if p.k_tail else "k_tail")

    def _rotary(self):
        r = self._params.rotary
        self.rotary_dim, self.rotary_interleaved, self.rotary_q_position = r.dim, bool(r.interleaved), r.q_position
        for name in ("cos", "sin"):
            self._view(f"rotary_{name}", (r.positions, r.dim // 2), (r.dim // 2, 1), DType.FP32, field=name, of=r)

    def _attention(self):
        p, f = self._params, self.features
        batch, heads_q, heads_kv, d, dv = p.batch, p.num_heads_q, p.num_heads_kv, p.head_dim, p.head_dim_v
        self.total_k = 0
        if f & Feature.PACKED_KV and p.cu_seqlens_k:
            self.total_k = self._int32(p.cu_seqlens_k, batch)
        self._view("q", (p.total_q, heads_q, d), (p.q_stride_token, p.q_stride_head, 1), self.dtype_q)
        self._view("qv", (p.total_q, heads_q, dv), (p.qv_stride_token, p.qv_stride_head, 1), self.dtype_q)
        for name in ("cu_seqlens_q", "cu_seqlens_k"):
            self._row(name, batch + 1)
        self._row("seqused_q", batch, used=f & Feature.SEQUSED_Q)
        self._row("seqused_k", batch, used=not f & Feature.PACKED_KV or f & Feature.PARTIAL_KV)
        for name in ("cache_batch_idx", "cache_leftpad"):
            self._row(name, batch)
        rows = batch
        if f & Feature.PAGED_BATCH_IDX:  # the launch does not say how many there are
            rows = max((self._int32(p.cache_batch_idx, b) + 1 for b in range(batch)), default=0) if p.cache_batch_idx else 0
        self._view("block_table", (rows, p.block_table_stride), (p.block_table_stride, 1), "int32", used=f & Feature.PAGED_KV)
        stored = dv if f & Feature.K_TAIL else d  # channels of K that are not in k_tail
        for name, kind, channels, dtype in (("k", "k", stored, self.dtype_k), ("v", "v", dv, self.dtype_v),
                                            ("k_cache", "k", d, self.dtype_k), ("v_cache", "v", dv, self.dtype_v)):
            self._cache(name, kind, channels, dtype)
        if f & Feature.V_IS_K:
            for view, whole in ((self.v, self.k), (self.v_cache, self.k_cache)):
                if view is not None:
                    view.whole = whole
        self._block_scales(stored, dv)
        for kind, channels, dtype in (("k", d, self.dtype_k_new), ("v", dv, self.dtype_v_new)):
            strides = (getattr(p, f"{kind}_new_stride_token"), getattr(p, f"{kind}_new_stride_head"), 1)
            self._view(f"{kind}_new", (p.total_new, heads_kv, channels), strides, dtype)
        self._row("cu_seqlens_new", batch + 1)
        self._rotary()
        self._alibi_slopes()
        self._custom_mask()
        self._row("sinks", heads_q, DType.FP32)
        self._descales()
        self._view("out", (p.total_q, heads_q, dv), (p.out_stride_token, p.out_stride_head, 1), self.dtype_out)
        self._row("out_scale", 1, DType.FP32)
        lse = (1, p.lse_stride_token) if self.features & Feature.LSE_TOKEN_MAJOR else (p.lse_stride_head, 1)
        self._view("lse", (heads_q, p.total_q), lse, DType.FP32)
        self._view("probs", (heads_q, p.total_q, p.max_seqlen_k), (p.probs_stride_head, p.probs_stride_token, 1), DType.FP32)

    def _custom_mask(self):
        """custom_mask: the bytes of all sequences, which begin at mask_indptr. Lists of keys."""
        p = self._params
        self._row("mask_indptr", p.batch + 1)
        self._view("topk_indices", (p.total_q, p.num_heads_kv, p.topk), (p.topk_stride_token, p.topk_stride_head, 1), "int32")
        self._row("topk_length", p.total_q)
        self._row("custom_mask", self._int32(p.mask_indptr, p.batch) if p.mask_indptr else 0, "uint8")

    def _descales(self):
        p = self._params
        per_sequence = (p.batch, p.num_heads_kv)
        self._row("cu_q_descales", p.batch + 1)
        self._row("cu_k_descales", p.batch + 1)
        blocks_q = self._int32(p.cu_q_descales, p.batch) if p.cu_q_descales else p.total_q
        rows_q = (blocks_q, p.num_heads_q) if self.dtype_q == DType.INT8 else per_sequence
        self._view("q_descale", rows_q, (p.q_descale_stride_outer, p.q_descale_stride_head), DType.FP32)
        for kind, of_rows in (("k", Feature.INT8_K | Feature.K_TOKEN_SCALES), ("v", Feature.V_TOKEN_SCALES)):
            block, outer, head = (getattr(p, f"{kind}_descale_stride_{over}") for over in ("block", "outer", "head"))
            if not self.features & of_rows:
                shape, strides = per_sequence, (outer, head)
                if kind == "v" and (self.dtype_v == DType.INT8 or self.features & Feature.V_CHANNEL_SCALES):
                    shape, strides = (p.num_heads_kv, p.head_dim_v), (head, 1)
            elif self.features & Feature.PACKED_KV:
                blocks_k = self._int32(p.cu_k_descales, p.batch) if kind == "k" and p.cu_k_descales else self.total_k
                shape, strides = (blocks_k, p.num_heads_kv), (outer, head)
            else:
                tokens = p.cache_capacity if self.features & Feature.CONTIGUOUS_KV else p.block_size
                if kind == "k" and p.k_descale_rows > 1:
                    tokens = -(-tokens // p.k_descale_rows)
                shape, strides = (p.num_blocks, tokens, p.num_heads_kv), (block, outer, head)
            self._view(f"{kind}_descale", shape, strides, DType.FP32)

    def _kv_append(self):
        p = self._params
        tokens, heads, d, dv = p.num_tokens, p.num_heads_kv, p.head_dim, p.head_dim_v
        for name, channels in (("key", d), ("value", dv)):
            strides = (getattr(p, f"{name}_stride_token"), getattr(p, f"{name}_stride_head"), 1)
            self._view(name, (tokens, heads, channels), strides, self.dtype_in)
        self._row("slot_mapping", tokens, "int64")
        self._row("positions", tokens)
        self._row("positions64", tokens, "int64")
        for name, dtype in (("query", self.dtype_in), ("query_out", self.dtype_query_out)):
            strides = (getattr(p, f"{name}_stride_token"), getattr(p, f"{name}_stride_head"), 1)
            self._view(name, (tokens, p.num_heads_q, d), strides, dtype)
        self._row("query_scale", 1, DType.FP32)
        self._cache("k_cache", "k", d, self.dtype_k)
        self._cache("v_cache", "v", dv, self.dtype_v)
        self._rotary()
        for kind, channels in (("k", d), ("v", dv)):
            s = getattr(p, f"{kind}_scale")
            self._view(f"{kind}_scale", (heads, channels), (s.given_stride_head, s.given_stride_channel), DType.FP32, field="given", of=s)
            self._view(f"{kind}_scale_computed", (p.num_blocks, p.block_size, heads),
                       (s.stride_block, s.stride_token, s.stride_head), DType.FP32, field="computed", of=s)

    def _merge_states(self):
        p = self._params
        n, rows, heads, d = p.num_states, p.num_rows, p.num_heads, p.head_dim
        if self.features & Feature.RAGGED_STATES:
            self._view("partial_out", (p.total_states, heads, d), (p.partial_stride_state, p.partial_stride_head, 1), self.dtype_partial)
            self._view("partial_lse", (p.total_states, heads), (p.lse_stride_state, p.lse_stride_head), DType.FP32)
        else:
            self._view("partial_out", (n, rows, heads, d),
                       (p.partial_stride_state, p.partial_stride_token, p.partial_stride_head, 1), self.dtype_partial)
            self._view("partial_lse", (n, rows, heads), (p.lse_stride_state, p.lse_stride_token, p.lse_stride_head), DType.FP32)
        self._row("state_indptr", rows + 1)
        self._view("out", (rows, heads, d), (p.out_stride_token, p.out_stride_head, 1), self.dtype_out)
        self._row("out_scale", 1, DType.FP32)
        lse = (1, p.out_lse_stride_token) if self.features & Feature.LSE_TOKEN_MAJOR else (p.out_lse_stride_head, 1)
        self._view("out_lse", (heads, rows), lse, DType.FP32)

    def _attention_backward(self):
        p = self._params
        rows_q, rows_k = (p.total_q, p.num_heads_q), (p.total_k, p.num_heads_kv)
        for name, rows, channels in (("q", rows_q, p.head_dim), ("k", rows_k, p.head_dim), ("v", rows_k, p.head_dim_v),
                                     ("out", rows_q, p.head_dim_v), ("d_out", rows_q, p.head_dim_v), ("dq", rows_q, p.head_dim),
                                     ("dk", rows_k, p.head_dim), ("dv", rows_k, p.head_dim_v)):
            strides = (getattr(p, f"{name}_stride_token"), getattr(p, f"{name}_stride_head"), 1)
            self._view(name, (*rows, channels), strides, self.dtype)
        self._view("lse", (p.num_heads_q, p.total_q), (p.lse_stride_head, 1), DType.FP32)
        for name in ("cu_seqlens_q", "cu_seqlens_k"):
            self._row(name, p.batch + 1)
        self._alibi_slopes()
        for name in ("sinks", "dsinks"):
            self._row(name, p.num_heads_q, DType.FP32)

    def _kv_move(self):
        p, gather = self._params, bool(self.features & Feature.GATHER)
        heads, rows = p.num_heads_kv, p.block_size
        tensors = [("k", p.head_dim, self.dtype_k)] + [("v", p.head_dim_v, self.dtype_v)] * (not self.features & Feature.V_IS_K)
        for kind, channels, dtype in tensors:
            for end, blocks in (("src", p.num_blocks_src), ("dst", p.num_blocks_dst)):
                name = f"{kind}_{end}"
                block, token, head = (getattr(p, f"{name}_stride_{s}") for s in ("block", "token", "head"))
                if gather and end == "dst":
                    self._view(name, (p.total_k, heads, channels), (token, head, 1), self.dtype_out)
                elif self.features & Feature.HND:
                    self._view(name, (blocks, heads, rows, channels), (block, head, token, 1), dtype)
                else:
                    self._view(name, (blocks, rows, heads, channels), (block, token, head, 1), dtype)
            self._row(f"{kind}_descale", 1, DType.FP32)
        if self.features & Feature.V_IS_K:
            self.v_src = self.v_dst = self.v_descale = None
        self._view("block_pairs", (p.num_pairs, 2), (2, 1), "int64")
        self._view("block_table", (p.batch, p.block_table_stride), (p.block_table_stride, 1), "int32")
        self._row("cu_seqlens", p.batch + 1)
        self._row("seq_starts", p.batch)

    def _alibi_slopes(self):
        p = self._params
        per_batch = p.alibi_stride_batch != 0
        self._view("alibi_slopes", (p.batch, p.num_heads_q) if per_batch else (p.num_heads_q,),
                   (p.alibi_stride_batch, 1) if per_batch else (1,), DType.FP32)

    def _converted(self, names, how):
        tensors = []
        for name in names.replace(",", " ").split():
            view = getattr(self, name)
            if view is not None and not isinstance(view, Tensor):
                raise TypeError(f"{name} is no tensor of {self.op}")
            tensors.append(None if view is None else getattr(view, how)())
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    def numpy(self, names: str) -> Any:
        """Tensors by their names, separated by blanks, as NumPy arrays (cpu device)."""
        return self._converted(names, "numpy")

    def torch(self, names: str) -> Any:
        """The same as torch tensors. On a GPU, torch's current stream becomes the launch's."""
        use_torch(self)
        return self._converted(names, "torch")

    def cupy(self, names: str) -> Any:
        """The same as CuPy arrays. CuPy's current stream becomes the launch's."""
        import cupy
        cupy.cuda.Device(self.device_index).use()
        cupy.cuda.ExternalStream(self.stream, self.device_index).use()
        return self._converted(names, "cupy")

    def jax(self, names: str) -> Any:
        """The same as JAX arrays (cpu device). The launch returns its outputs (returns=True), after block_until_ready()."""
        return self._converted(names, "jax")


def use_torch(call):
    """Makes the launch's stream the current one of torch, on which Triton launches, too."""
    import torch
    if call.device == "cuda":
        torch.cuda.set_device(call.device_index)
        torch.cuda.set_stream(torch.cuda.ExternalStream(call.stream, device=call.device_index))
    else:
        torch.set_num_threads(max(1, call.num_threads))
