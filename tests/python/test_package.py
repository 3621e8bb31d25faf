#!/usr/bin/env python3
"""Tests of the package harness/python/attnbench: tensors and calls. Decorators: test_decorators.py; check and run: test_api.py.

    ATTNBENCH=build/attnbench PYTHONPATH=harness/python python3 tests/python/test_package.py
"""
import ctypes
import os
import pathlib
import re
import sys
import types
import unittest
from unittest import mock

try:
    import numpy as np
except ImportError:
    print("skipped: this python3 has no NumPy (Debian: python3-numpy)")
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None

import attnbench as ab
from attnbench import _contract, _host, _returned
from attnbench._contract import AttentionParams, DType, Feature, KvAppendParams, LaunchContext, MergeStatesParams, Op, OpParams

HERE = os.path.dirname(os.path.abspath(__file__))
NUMPY_TYPES = {DType.BF16: np.uint16, DType.FP16: np.float16, DType.FP32: np.float32, DType.E4M3: np.uint8, DType.E5M2: np.uint8, DType.INT8: np.int8}
NEEDS_TORCH = unittest.skipIf(torch is None, "this python3 has no torch")


def tensor(array, dtype, shape=None, strides=None):
    """A Tensor over the memory of a NumPy array."""
    strides = strides or tuple(s // array.itemsize for s in array.strides)
    view = ab.Tensor("t", array.ctypes.data, shape or array.shape, strides, dtype, "cpu", 0)
    view.memory = array  # lives as long as the view
    return view


def bits_to_float(bits):
    return (np.asarray(bits, np.uint32) << 16).view(np.float32)


def exact_e4m3(bits):
    """The value of an e4m3 number, by its definition (OCP 8-bit floating point, section 5)."""
    sign, exponent, mantissa = -1.0 if bits & 0x80 else 1.0, bits >> 3 & 15, bits & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0**(exponent - 7))


def exact_e5m2(bits):
    """The same for e5m2."""
    sign, exponent, mantissa = -1.0 if bits & 0x80 else 1.0, bits >> 2 & 31, bits & 3
    if exponent == 31:
        return float("nan") if mantissa else sign * float("inf")
    return sign * (mantissa / 4 * 2.0**-14 if exponent == 0 else (1 + mantissa / 4) * 2.0**(exponent - 15))


class TensorTest(unittest.TestCase):
    def test_numpy_sees_the_same_memory_through_the_strides(self):
        for dtype, kind in NUMPY_TYPES.items():
            memory = np.arange(60).astype(kind)
            view = tensor(memory, dtype, (3, 2, 4), (20, 8, 1)).numpy()
            self.assertEqual((view.shape, view.dtype, view.strides), ((3, 2, 4), kind, tuple(s * memory.itemsize for s in (20, 8, 1))))
            np.testing.assert_array_equal(view[2, 1], memory[48:52])
            view[1, 0, 3] = 7
            self.assertEqual(memory[23], 7)

    def test_lengths_are_integers(self):
        for dtype, kind in (("int32", np.int32), ("int64", np.int64)):
            rows = tensor(np.array([3, -1], kind), dtype)
            self.assertEqual(rows[1], -1)
            self.assertEqual(rows[:].dtype, kind)
            self.assertEqual(repr(rows), f"Tensor(t, shape=(2,), dtype={dtype}, cpu)")

    @NEEDS_TORCH
    def test_a_view_may_end_while_an_exception_is_on_its_way(self):
        view = tensor(np.arange(4, dtype=np.float32), DType.FP32)

        def refuse():
            raise ab.Unsupported("no")
        with self.assertRaisesRegex(ab.Unsupported, "no"):
            view.torch().reshape(refuse())

    def test_an_empty_tensor_has_its_shape(self):
        empty = ab.Tensor("t", None, (0, 2, 8), (16, 8, 1), DType.BF16, "cpu", 0)
        self.assertEqual(empty.numpy().shape, (0, 2, 8))
        self.assertEqual(empty[0:0].dtype, np.float32)

    def test_every_bf16_is_read(self):
        bits = np.arange(1 << 16, dtype=np.uint16)
        np.testing.assert_array_equal(tensor(bits, DType.BF16)[:].view(np.uint32), bits.astype(np.uint32) << 16)

    def test_every_e4m3_is_read(self):
        read = tensor(np.arange(256, dtype=np.uint8), DType.E4M3)[:]
        np.testing.assert_array_equal(read, np.array([exact_e4m3(b) for b in range(256)], np.float32))
        self.assertEqual([read[b] for b in (0x01, 0x08, 0x38, 0x7e, 0xfe)], [2.0**-9, 2.0**-6, 1, 448, -448])
        self.assertTrue(np.signbit(read[0x80]))

    def test_every_e5m2_is_read(self):
        read = tensor(np.arange(256, dtype=np.uint8), DType.E5M2)[:]
        np.testing.assert_array_equal(read, np.array([exact_e5m2(b) for b in range(256)], np.float32))
        self.assertEqual([read[b] for b in (0x01, 0x04, 0x3c, 0x7b, 0xfb, 0x7c, 0xfc)],
                         [2.0**-16, 2.0**-14, 1, 57344, -57344, np.inf, -np.inf])
        self.assertTrue(np.signbit(read[0x80]))

    def test_int8_is_read_as_float(self):
        read = tensor(np.array([-128, 127], np.int8), DType.INT8)[:]
        self.assertEqual((read.dtype, read.tolist()), (np.float32, [-128, 127]))

    def test_bf16_is_rounded_to_nearest_even(self):
        """Six float32 between each bf16 and the next: the nearest by float64 arithmetic, the even one of a tie."""
        finite = np.array([b for b in range(1 << 16) if b & 0x7f80 != 0x7f80], np.uint32)
        out = tensor(np.zeros(len(finite), np.uint16), DType.BF16)
        for low in (0, 1, 0x7fff, 0x8000, 0x8001, 0xffff):
            values = (finite << 16 | low).view(np.float32)
            below, above = (np.abs(bits_to_float(b).astype(np.float64)) for b in (finite, finite + 1))
            above = np.where(np.isinf(above), 2.0**128, above)
            distance_below, distance_above = np.abs(values) - below, above - np.abs(values)
            up = (distance_above < distance_below) | ((distance_above == distance_below) & (finite & 1 == 1))
            out[:] = values
            np.testing.assert_array_equal(out.numpy(), finite + up)

    def test_bf16_keeps_nan_infinity_and_minus_zero(self):
        out = tensor(np.zeros(6, np.uint16), DType.BF16)
        nan = np.array([0x7f800001, 0xffffffff], np.uint32).view(np.float32)  # payloads that rounding would lose
        out[:] = np.array([nan[0], nan[1], np.inf, -np.inf, -0.0, np.finfo(np.float32).max], np.float32)
        self.assertTrue(np.isnan(out[0:2]).all())
        self.assertEqual(out.numpy()[2:].tolist(), [0x7f80, 0xff80, 0x8000, 0x7f80])

    def test_fp16_and_fp32_are_written_by_index(self):
        half, single = tensor(np.zeros(3, np.float16), DType.FP16), tensor(np.zeros((2, 2), np.float32), DType.FP32)
        half[:] = [1 + 2.0**-11, 1 + 3 * 2.0**-11, -0.0]
        self.assertEqual(half.numpy().view(np.uint16).tolist(), [0x3c00, 0x3c02, 0x8000])
        single[1] = 0.1
        self.assertEqual(single[1].tolist(), [np.float32(0.1)] * 2)

    def test_strided_and_broadcast_values_are_written(self):
        out = tensor(np.zeros((3, 2), np.uint16), DType.BF16)
        out[:, 1] = np.arange(12, dtype=np.float64).reshape(3, 4)[:, 2]
        out[0] = 5
        self.assertEqual(out[:].tolist(), [[5, 5], [0, 6], [0, 10]])

    def test_quantised_numbers_are_not_written_by_index(self):
        for dtype in (DType.E4M3, DType.INT8):
            with self.assertRaisesRegex(TypeError, f"t: {dtype} is not written by index; write into numpy"):
                tensor(np.zeros(1, NUMPY_TYPES[dtype]), dtype)[0] = 1

    def test_pairs_of_e2m1_are_read(self):
        pairs = np.array([[0x10, 0xf7], [0x98, 0x32]], np.uint8)
        read = tensor(pairs, DType.E2M1X2)[:]
        self.assertEqual(read.tolist(), [[0, 0.5, 6, -6], [0, -0.5, 1, 1.5]])

    def test_lengths_are_not_written_by_index(self):
        self.assertRaisesRegex(TypeError, "t: int32 is not written by index; write into numpy", tensor(np.zeros(1, np.int32), "int32").__setitem__, 0, 1)

    def test_numpy_reads_dlpack(self):
        memory = np.arange(24, dtype=np.float32)
        array = np.from_dlpack(tensor(memory, DType.FP32, (2, 3), (12, 4)))
        self.assertEqual(array.tolist(), [[0, 4, 8], [12, 16, 20]])
        memory[4] = -1
        self.assertEqual(array[0, 1], -1)
        self.assertRaises(BufferError, tensor(memory, DType.FP32).__dlpack__, copy=True)

    def test_a_gpu_tensor_is_refused_by_numpy_and_has_its_interface(self):
        gpu = ab.Tensor("q", 4096, (2, 8), (8, 1), DType.FP16, "cuda", 3)
        with self.assertRaisesRegex(TypeError, "q is in GPU memory; NumPy kernels are for the cpu device"):
            gpu.numpy()
        self.assertFalse(hasattr(gpu, "__array_interface__"))
        self.assertEqual(gpu.__cuda_array_interface__["strides"], (16, 2))
        self.assertEqual(gpu.__dlpack_device__(), (2, 3))

    def test_jax_takes_dense_tensors_of_the_cpu(self):
        jax = types.SimpleNamespace(dlpack=types.SimpleNamespace(from_dlpack=lambda t, copy: np.from_dlpack(t)))
        numbers, gpu = np.arange(24, dtype=np.float32), ab.Tensor("q", 4096, (2, 8), (8, 1), DType.FP16, "cuda", 0)
        with mock.patch.dict(sys.modules, jax=jax):
            self.assertEqual(tensor(numbers, DType.FP32, (2, 3), (3, 1)).jax().tolist(), [[0, 1, 2], [3, 4, 5]])
            for refused, why in ((tensor(numbers, DType.FP32, (2, 3), (12, 4)), "dense tensors only"), (gpu, "a stream of its own")):
                self.assertRaisesRegex(ab.Unsupported, why, refused.jax)

    @NEEDS_TORCH
    def test_torch_shares_the_memory_of_each_type(self):
        kinds = {DType.BF16: torch.bfloat16, DType.FP16: torch.float16, DType.FP32: torch.float32, DType.E4M3: torch.float8_e4m3fn,
                 DType.E5M2: torch.float8_e5m2, DType.INT8: torch.int8, "int32": torch.int32, "int64": torch.int64}
        for dtype, kind in kinds.items():
            memory = np.zeros(60, NUMPY_TYPES.get(dtype, dtype))
            view = tensor(memory, dtype, (3, 2, 4), (20, 8, 1)).torch()
            self.assertEqual((view.dtype, view.shape, view.stride()), (kind, (3, 2, 4), (20, 8, 1)))
            view[2, 1, 3] = 1
            self.assertEqual(np.flatnonzero(memory).tolist(), [51])
            self.assertEqual(ab.Tensor("t", None, (0, 4), (4, 1), dtype, "cpu", 0).torch().shape, (0, 4))

    @NEEDS_TORCH
    def test_torch_agrees_on_every_number(self):
        bits = np.arange(256, dtype=np.uint8)
        for dtype in (DType.E4M3, DType.E5M2):
            np.testing.assert_array_equal(tensor(bits, dtype)[:], tensor(bits, dtype).torch().float().numpy())
        values = np.random.default_rng(1).integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32)
        out = tensor(np.zeros(values.shape, np.uint16), DType.BF16)
        out[:] = values
        np.testing.assert_array_equal(out[:], torch.from_numpy(values).bfloat16().float().numpy())


class Params:
    """An OpParams with memory of its own for each field that is given as an array."""

    def __init__(self, op, **fields):
        self.all, self.kept = OpParams(op=op), {}
        self.params = getattr(self.all, Op(op).name.lower())
        for name, value in fields.items():
            where, _, field = name.rpartition("__")
            if isinstance(value, np.ndarray):
                self.kept[name], value = value, value.ctypes.data
            setattr(getattr(self.params, where) if where else self.params, field, value)

    def call(self, **context):
        def read(to, source, size):
            ctypes.memmove(to, source, size)
            return 0
        return ab.Call(self.all, LaunchContext(num_threads=2, **context), read)


def attention(features, **fields):
    """Two sequences of 2 and 3 queries, with 4 and 3 keys; Hq 4, Hkv 2, D 8."""
    given = dict(features=features, batch=2, num_heads_q=4, num_heads_kv=2, head_dim=8, head_dim_v=8, total_q=5, max_seqlen_q=3,
                 max_seqlen_k=4, dtype_q=DType.BF16, dtype_k=DType.BF16, dtype_v=DType.BF16, dtype_out=DType.BF16, softmax_scale=0.5,
                 q=np.zeros((5, 4, 8), np.uint16), q_stride_token=32, q_stride_head=8, cu_seqlens_q=np.array([0, 2, 5], np.int32),
                 out=np.zeros((5, 6, 8), np.uint16), out_stride_token=48, out_stride_head=8, lse=np.zeros((4, 6), np.float32),
                 lse_stride_head=6)
    return Params(Op.ATTENTION, **{**given, **fields})


class CallTest(unittest.TestCase):
    def assert_view(self, view, memory, shape, strides):
        self.assertEqual((view.pointer, view.shape, view.strides), (memory.ctypes.data, shape, strides), view.name)

    def test_packed(self):
        p = attention(Feature.PACKED_KV | Feature.CAUSAL | Feature.BF16, k=np.zeros((7, 2, 8), np.uint16), k_stride_token=16,
                      k_stride_head=8, v=np.zeros((7, 3, 8), np.uint16), v_stride_token=24, v_stride_head=8, causal=1, window_left=-1,
                      cu_seqlens_k=np.array([0, 4, 7], np.int32), seqused_k=np.array([4, 2], np.int32))
        c = p.call()
        self.assertEqual((c.op, c.device, c.batch, c.num_threads, c.total_k, c.softmax_scale), ("attention", "cpu", 2, 2, 7, 0.5))
        self.assertEqual((c.dtype_q, c.causal, c.window_left), (DType.BF16, 1, -1))
        self.assertTrue(c.has("causal") and c.has(Feature.PACKED_KV) and not c.has("paged"))
        with self.assertRaisesRegex(ValueError, r"has\('casual'\): one of alibi, .* required"):
            c.has("casual")
        with self.assertRaisesRegex(AttributeError, "a call of attention has no 'seqlens_q'; did you mean 'cu_seqlens_q'"):
            c.numpy("q, seqlens_q")
        self.assert_view(c.q, p.kept["q"], (5, 4, 8), (32, 8, 1))
        self.assert_view(c.k, p.kept["k"], (7, 2, 8), (16, 8, 1))
        self.assert_view(c.v, p.kept["v"], (7, 2, 8), (24, 8, 1))
        self.assert_view(c.out, p.kept["out"], (5, 4, 8), (48, 8, 1))
        self.assert_view(c.lse, p.kept["lse"], (4, 5), (6, 1))
        self.assertEqual(c.cu_seqlens_q[:].tolist(), [0, 2, 5])
        self.assertEqual(c.seqused_k[:].tolist(), [4, 2])
        self.assertEqual([getattr(c, name) for name in ("block_table", "sinks", "alibi_slopes", "k_new", "probs")], [None] * 5)
        q, lse, none = c.numpy("q lse sinks")
        self.assertEqual((q.shape, lse.shape, none), ((5, 4, 8), (4, 5), None))
        with self.assertRaisesRegex(TypeError, "batch is no tensor of attention"):
            c.numpy("batch")

    def test_an_empty_batch_has_empty_lengths(self):
        empty = dict(batch=0, total_q=0, cu_seqlens_q=np.zeros(1, np.int32), block_table_stride=3, block_size=16)
        c = attention(Feature.PAGED_KV | Feature.BF16, **empty).call()
        self.assertEqual((c.seqused_k.shape, c.block_table.shape, c.seqused_q), ((0,), (0, 3), None))
        packed = dict(empty, cu_seqlens_k=np.zeros(1, np.int32))
        self.assertEqual(attention(Feature.PACKED_KV | Feature.PARTIAL_KV, **packed).call().numpy("seqused_k").tolist(), [])
        c = attention(Feature.PACKED_KV, **packed).call()
        self.assertEqual((c.seqused_k, c.block_table), (None, None))

    @NEEDS_TORCH
    def test_v_that_is_a_view_of_k_shares_its_storage(self):
        rows = np.arange(2 * 16 * 2 * 8, dtype=np.float32).reshape(2, 16, 2, 8)
        c = attention(Feature.PAGED_KV | Feature.FP32 | Feature.V_IS_K | Feature.HEAD_DIM_V, k=rows, v=rows, head_dim_v=6, num_blocks=2,
                      block_size=16, dtype_k=DType.FP32, dtype_v=DType.FP32, k_stride_block=256, k_stride_token=16, k_stride_head=8,
                      v_stride_block=256, v_stride_token=16, v_stride_head=8).call()
        k, v = c.torch("k v")
        self.assertEqual((v.shape, v.stride(), v.data_ptr()), ((2, 16, 2, 6), (256, 16, 8, 1), k.data_ptr()))
        self.assertEqual(v.untyped_storage()._cdata, k.untyped_storage()._cdata)
        np.testing.assert_array_equal(v.numpy(), rows[..., :6])

    def test_paged_in_both_orders(self):
        table = np.array([[2, 0, 9], [1, 9, 9]], np.int32)
        for hnd in (False, True):
            shape, strides = ((3, 2, 4, 8), (64, 32, 8, 1)) if hnd else ((3, 4, 2, 8), (64, 16, 8, 1))
            cache = np.arange(192).astype(np.uint16).reshape(shape)
            token, head = (8, 32) if hnd else (16, 8)
            p = attention(Feature.PAGED_KV | Feature.BF16 | (Feature.HND if hnd else 0), k=cache, v=cache, k_stride_block=64,
                          k_stride_token=token, k_stride_head=head, v_stride_block=64, v_stride_token=token, v_stride_head=head,
                          block_table=table, block_table_stride=3, block_size=4, num_blocks=3, seqused_k=np.array([4, 3], np.int32))
            c = p.call()
            self.assert_view(c.k, cache, shape, strides)
            self.assert_view(c.v, cache, shape, strides)
            np.testing.assert_array_equal(c.k.numpy(), cache)
            self.assertEqual(c.block_table[:].tolist(), table.tolist())
            self.assertIsNone(c.cu_seqlens_k)

    def test_contiguous_with_append_and_rotary(self):
        cache, new = np.zeros((3, 6, 2, 8), np.uint16), np.zeros((5, 2, 8), np.uint16)
        stride = {f"{t}_stride_{s}": n for t in "kv" for s, n in (("block", 96), ("token", 16), ("head", 8))}
        stride.update({f"{t}_new_stride_{s}": n for t in "kv" for s, n in (("token", 16), ("head", 8))})
        p = attention(Feature.CONTIGUOUS_KV | Feature.APPEND | Feature.ROTARY | Feature.BF16, k=cache, v=cache, k_cache=cache,
                      v_cache=cache, num_blocks=3, cache_capacity=6, cache_batch_idx=np.array([2, 0], np.int32), k_new=new, v_new=new,
                      cu_seqlens_new=np.array([0, 2, 5], np.int32), total_new=5, rotary__cos=np.zeros((9, 2), np.float32),
                      rotary__sin=np.ones((9, 2), np.float32), rotary__dim=4, rotary__positions=9, rotary__q_position=1, **stride)
        c = p.call()
        self.assert_view(c.k, cache, (3, 6, 2, 8), (96, 16, 8, 1))
        self.assert_view(c.v_cache, cache, (3, 6, 2, 8), (96, 16, 8, 1))
        self.assert_view(c.k_new, new, (5, 2, 8), (16, 8, 1))
        self.assert_view(c.rotary_sin, p.kept["rotary__sin"], (9, 2), (2, 1))
        self.assertEqual((c.rotary_dim, c.rotary_interleaved, c.rotary_q_position), (4, False, 1))
        self.assertEqual(c.cache_batch_idx[:].tolist(), [2, 0])

    def test_descales_and_slopes(self):
        f32 = np.zeros(64, np.float32)
        c = attention(Feature.PAGED_KV | Feature.INT8_K | Feature.INT8_V | Feature.BF16, dtype_k=DType.INT8, dtype_v=DType.INT8, k=f32,
                      v=f32, num_blocks=3, block_size=4, k_descale=f32, v_descale=f32, k_descale_stride_block=8,
                      k_descale_stride_outer=2, k_descale_stride_head=1, v_descale_stride_head=8, sinks=f32, alibi_slopes=f32).call()
        self.assert_view(c.k_descale, f32, (3, 4, 2), (8, 2, 1))
        self.assert_view(c.v_descale, f32, (2, 8), (8, 1))
        self.assert_view(c.sinks, f32, (4,), (1,))
        self.assert_view(c.alibi_slopes, f32, (4,), (1,))
        c = attention(Feature.PAGED_KV | Feature.E4M3_KV, dtype_k=DType.E4M3, dtype_v=DType.E4M3, k=f32, v=f32, k_descale=f32,
                      k_descale_stride_outer=2, k_descale_stride_head=1, alibi_slopes=f32, alibi_stride_batch=4).call()
        self.assert_view(c.k_descale, f32, (2, 2), (2, 1))
        self.assert_view(c.alibi_slopes, f32, (2, 4), (4, 1))
        by_row = dict(k=f32, v=f32, k_descale=f32, v_descale=f32, num_blocks=3, block_size=4, k_descale_stride_block=8, k_descale_stride_outer=2,
                      k_descale_stride_head=1, v_descale_stride_block=16, v_descale_stride_outer=1, v_descale_stride_head=4)
        c = attention(Feature.PAGED_KV | Feature.E4M3_KV | Feature.K_TOKEN_SCALES | Feature.V_TOKEN_SCALES, dtype_k=DType.E4M3, dtype_v=DType.E4M3,
                      **by_row).call()
        self.assert_view(c.k_descale, f32, (3, 4, 2), (8, 2, 1))
        self.assert_view(c.v_descale, f32, (3, 4, 2), (16, 1, 4))
        c = attention(Feature.PAGED_KV | Feature.INT8_K | Feature.DESCALE_ROWS, dtype_k=DType.INT8, dtype_v=DType.BF16, k_descale_rows=2, **by_row).call()
        self.assert_view(c.k_descale, f32, (3, 2, 2), (8, 2, 1))
        self.assertEqual(c.k_descale_rows, 2)

    def test_kv_append(self):
        key, cache, scale = np.zeros((3, 2, 8), np.float16), np.zeros((4, 16, 2, 8), np.uint8), np.ones(2, np.float32)
        p = Params(Op.KV_APPEND, features=Feature.FP16 | Feature.E4M3_KV, num_tokens=3, num_heads_kv=2, head_dim=8, head_dim_v=8, dtype_in=DType.FP16,
                   dtype_k=DType.E4M3, dtype_v=DType.E4M3, block_size=16, num_blocks=4, key=key, value=key, key_stride_token=16,
                   key_stride_head=8, value_stride_token=16, value_stride_head=8, slot_mapping=np.array([5, -1, 63], np.int64),
                   k_cache=cache, v_cache=cache, k_stride_block=256, k_stride_token=16, k_stride_head=8, v_stride_block=256,
                   v_stride_token=16, v_stride_head=8, k_scale__given=scale, k_scale__given_stride_head=1)
        c = p.call()
        self.assertEqual(c.op, "kv_append")
        self.assert_view(c.key, key, (3, 2, 8), (16, 8, 1))
        self.assert_view(c.v_cache, cache, (4, 16, 2, 8), (256, 16, 8, 1))
        self.assert_view(c.k_scale, scale, (2, 8), (1, 0))
        self.assertEqual(c.slot_mapping[:].tolist(), [5, -1, 63])
        self.assertEqual((c.k_cache.dtype, c.v_scale, c.k_scale_computed, c.positions), (DType.E4M3, None, None, None))
        np.testing.assert_array_equal(c.k_scale[:], np.ones((2, 8)))

    def test_kv_append_returns_queries(self):
        query, out, scale = np.zeros((3, 4, 8), np.float16), np.zeros((3, 4, 8), np.uint8), np.ones(1, np.float32)
        c = Params(Op.KV_APPEND, features=Feature.FP16 | Feature.QUERY_OUT | Feature.POSITIONS64, num_tokens=3, num_heads_kv=2,
                   num_heads_q=4, head_dim=8, dtype_in=DType.FP16, dtype_query_out=DType.E4M3, query=query, query_out=out,
                   query_stride_token=32, query_stride_head=8, query_out_stride_token=32, query_out_stride_head=8,
                   query_scale=scale, positions64=np.array([7, 1 << 40, 9])).call()
        self.assert_view(c.query, query, (3, 4, 8), (32, 8, 1))
        self.assert_view(c.query_out, out, (3, 4, 8), (32, 8, 1))
        self.assertEqual((c.query.dtype, c.query_out.dtype, c.positions), (DType.FP16, DType.E4M3, None))
        self.assertEqual((c.query_scale[:].tolist(), c.positions64[:].tolist()), ([1], [7, 1 << 40, 9]))

    def test_merge_states(self):
        partial, lse, out = np.zeros((2, 3, 4, 8), np.float32), np.zeros((2, 4, 3), np.float32), np.zeros((3, 4, 8), np.uint16)
        c = Params(Op.MERGE_STATES, features=Feature.FP32, num_states=2, num_heads=4, head_dim=8, dtype_partial=DType.FP32,
                   dtype_out=DType.BF16, num_rows=3, partial_out=partial, partial_stride_state=96, partial_stride_token=32,
                   partial_stride_head=8, partial_lse=lse, lse_stride_state=12, lse_stride_token=1, lse_stride_head=3, out=out,
                   out_stride_token=32, out_stride_head=8, out_lse=lse, out_lse_stride_head=3).call()
        self.assert_view(c.partial_out, partial, (2, 3, 4, 8), (96, 32, 8, 1))
        self.assert_view(c.partial_lse, lse, (2, 3, 4), (12, 1, 3))
        self.assert_view(c.out_lse, lse, (4, 3), (3, 1))
        self.assertEqual((c.out.dtype, c.partial_out.dtype), (DType.BF16, DType.FP32))

    def test_kv_move(self):
        pool, packed, one = np.zeros((4, 16, 2, 8), np.uint8), np.zeros((5, 2, 8), np.float16), np.ones(1, np.float32)
        strides = {f"{t}_{end}_stride_{s}": x for t in "kv" for end in ("src", "dst") for s, x in (("block", 256), ("token", 16), ("head", 8))}
        c = Params(Op.KV_MOVE, features=Feature.FP16 | Feature.PAGED_KV | Feature.E4M3_KV | Feature.GATHER, num_heads_kv=2, head_dim=8,
                   head_dim_v=8, block_size=16, num_blocks_src=4, dtype_k=DType.E4M3, dtype_v=DType.E4M3, dtype_out=DType.FP16,
                   k_src=pool, v_src=pool, k_dst=packed, v_dst=packed, batch=1, total_k=5, k_descale=one, v_descale=one,
                   block_table=np.array([[2, -1]], np.int32), block_table_stride=2, cu_seqlens=np.array([0, 5], np.int32), **strides).call()
        self.assertEqual((c.op, c.block_pairs, c.seq_starts, c.v_dst.dtype), ("kv_move", None, None, DType.FP16))
        self.assert_view(c.k_src, pool, (4, 16, 2, 8), (256, 16, 8, 1))
        self.assert_view(c.k_dst, packed, (5, 2, 8), (16, 8, 1))
        self.assert_view(c.k_descale, one, (1,), (1,))
        self.assertEqual(c.block_table[:].tolist(), [[2, -1]])
        c = Params(Op.KV_MOVE, features=Feature.FP16 | Feature.PAGED_KV | Feature.HND | Feature.V_IS_K, num_heads_kv=2, head_dim=8,
                   head_dim_v=8, block_size=16, num_blocks_src=4, num_blocks_dst=4, dtype_k=DType.FP16, dtype_v=DType.FP16, k_src=pool,
                   k_dst=pool, block_pairs=np.array([[0, 3]], np.int64), num_pairs=1, k_src_stride_block=256, k_src_stride_token=8,
                   k_src_stride_head=128, k_dst_stride_block=256, k_dst_stride_token=8, k_dst_stride_head=128).call()
        self.assert_view(c.k_dst, pool, (4, 2, 16, 8), (256, 128, 8, 1))
        self.assertEqual((c.v_src, c.v_dst, c.block_pairs[:].tolist()), (None, None, [[0, 3]]))

    def test_attention_backward(self):
        q, k, lse, row = np.zeros((3, 4, 8), np.uint16), np.zeros((5, 2, 8), np.uint16), np.zeros((4, 3), np.float32), np.zeros(4, np.float32)
        strides = {f"{n}_stride_{s}": x for n in ("q", "out", "d_out", "dq") for s, x in (("token", 32), ("head", 8))}
        strides |= {f"{n}_stride_{s}": x for n in ("k", "v", "dk", "dv") for s, x in (("token", 16), ("head", 8))}
        c = Params(Op.ATTENTION_BACKWARD, features=Feature.BF16 | Feature.PACKED_KV, batch=1, num_heads_q=4, num_heads_kv=2, head_dim=8,
                   head_dim_v=8, dtype=DType.BF16, total_q=3, total_k=5, cu_seqlens_q=np.array([0, 3], np.int32),
                   cu_seqlens_k=np.array([0, 5], np.int32), q=q, out=q, d_out=q, dq=q, k=k, v=k, dk=k, dv=k, lse=lse,
                   lse_stride_head=3, sinks=row, dsinks=row, **strides).call()
        self.assertEqual(c.op, "attention_backward")
        for view in (c.q, c.out, c.d_out, c.dq):
            self.assert_view(view, q, (3, 4, 8), (32, 8, 1))
        for view in (c.k, c.v, c.dk, c.dv):
            self.assert_view(view, k, (5, 2, 8), (16, 8, 1))
        self.assert_view(c.lse, lse, (4, 3), (3, 1))
        self.assertEqual((c.dsinks.shape, c.alibi_slopes, c.dq.dtype), ((4,), None, DType.BF16))

    def test_a_gpu_is_a_context_with_a_compute_capability(self):
        c = attention(Feature.PAGED_KV | Feature.BF16).call(compute_capability=90, device_ordinal=1, stream=64, multiprocessors=132)
        self.assertEqual((c.device, c.device_index, c.stream, c.compute_capability, c.q.device), ("cuda", 1, 64, 90, "cuda"))

    def test_structs_have_the_size_of_c(self):
        """Of 64-bit Linux; the program compares them, too, when it takes a table."""
        self.assertEqual([ctypes.sizeof(s) for s in (LaunchContext, RotaryParams)], [48, 32])
        for struct in (AttentionParams, KvAppendParams, MergeStatesParams, _contract.AttentionBackwardParams, OpParams):
            self.assertEqual(ctypes.sizeof(struct) % 8, 0)


    def test_launches_of_all_copies_of_a_case_are_kept(self):
        """One that is not kept would be built again within a timed launch."""
        header = pathlib.Path(HERE, "../../harness/timing/timing.h").read_text()
        self.assertGreater(_host._KEPT, int(re.search(r"kMaxRotationCopies = (\d+)", header)[1]))


RotaryParams = _contract.RotaryParams


class ReturnedTest(unittest.TestCase):
    """Where returned tensors lie. The call has 5 rows, 4 heads and 8 channels."""

    def filled(self, result, **options):
        def named(c):
            """a kernel"""
        kernel = ab.attention("packed bf16", **{"returns": True, **options})(named)
        p = attention(Feature.PACKED_KV | Feature.BF16, dtype_out=DType.BF16)
        to = _contract.ReturnedOutputs()
        _returned.Outputs(kernel, p.call()).fill(result, ctypes.addressof(to))
        return to, p

    def test_strides_of_numpy_and_of_dlpack(self):
        memory, lse = np.zeros((4, 5, 24), np.uint16), np.zeros((5, 4), np.float32)
        out = memory[:, :, 8:16].swapaxes(0, 1)
        to, _ = self.filled((out, lse), lse="base2 token_major")
        self.assertEqual((to.out, to.out_stride_token, to.out_stride_head, to.out_stride_channel), (out.ctypes.data, 24, 120, 1))
        self.assertEqual((to.lse, to.lse_stride_token, to.lse_stride_head), (lse.ctypes.data, 4, 1))
        self.assertAlmostEqual(to.lse_factor, np.log(2), 6)

        class OnlyDlpack:
            """A tensor of bf16 of a library that nobody knows."""

            def __dlpack__(self):
                return tensor(memory, DType.BF16, (5, 4, 8), (24, 120, 1)).__dlpack__()
        to, _ = self.filled(OnlyDlpack(), lse="none")
        self.assertEqual((to.out, to.out_stride_token, to.out_stride_head, to.lse), (memory.ctypes.data, 24, 120, None))

        of_ml_dtypes = types.SimpleNamespace(__array_interface__={**out.__array_interface__, "typestr": "<V2"})
        self.assertEqual(self.filled(of_ml_dtypes, lse="none")[0].out, out.ctypes.data)

    def test_what_was_written_in_place_is_not_copied(self):
        to, p = self.filled(None, returns=False, lse="base2")
        self.assertEqual((to.out, to.lse, to.lse_stride_token, to.lse_stride_head), (None, p.kept["lse"].ctypes.data, 1, 6))

    @NEEDS_TORCH
    def test_tensors_of_torch(self):
        out = torch.zeros((4, 5, 8), dtype=torch.bfloat16).transpose(0, 1)
        to, _ = self.filled([out, torch.zeros((4, 5))])
        self.assertEqual((to.out, to.out_stride_token, to.out_stride_head), (out.data_ptr(), 8, 40))

        class Lazy(torch.Tensor):
            """May compute when it is looked at."""
        for wrong, text in ((out.as_subclass(Lazy), "as a Lazy, a kind of tensor that may compute later"),
                            (out.float(), "in float32; bfloat16, in NumPy its bits as uint16, required"), (out.to("meta"), "on meta; cpu required"),
                            (out[:4], r"of shape \(4, 4, 8\); \(5, 4, 8\) required"), (out.to_sparse(), "as a tensor of layout torch.sparse_coo")):
            with self.assertRaisesRegex(_returned.WrongOutput, "named returned O " + text):
                self.filled(wrong, lse="none")


if __name__ == "__main__":
    unittest.main()
