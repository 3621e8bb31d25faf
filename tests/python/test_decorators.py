#!/usr/bin/env python3
"""Tests of the decorators of harness/python/attnbench: what a kernel declares, and mistakes in it.

    PYTHONPATH=harness/python python3 tests/python/test_decorators.py
"""
import unittest

import attnbench as ab
from attnbench import _contract, _kernel
from attnbench._contract import AttentionParams, DType, Feature, Op


class DecoratorTest(unittest.TestCase):
    def declared(self, decorator, function=None):
        def named(c):
            """does this

            and that"""
        return decorator(function or named)

    def test_what_is_declared(self):
        k = self.declared(ab.attention("packed causal bf16", device=("cpu", "cuda"), head_dim=(64, 128), block_size=16, p="bf16",
                                       deterministic=True))
        self.assertIs(_kernel.declared[-1], k)
        self.assertEqual((k.name, k.summary, k.op), ("named", "does this", Op.ATTENTION))
        self.assertEqual(k.features, Feature.PACKED_KV | Feature.CAUSAL | Feature.BF16)
        self.assertEqual([d.name for d in k.devices], ["CPU", "CUDA"])
        self.assertEqual((k.p, k.acc, k.flags), (DType.BF16, DType.FP32, _contract.KernelFlag.DETERMINISTIC))
        self.assertEqual(k.shapes, "head_dim 64, 128, block_size 16")
        self.assertEqual(self.declared(ab.attention("packed", head_dim=range(8, 257, 8))).shapes, "head_dim 8, 16..256, any block_size")
        self.assertEqual(self.declared(ab.attention("packed")).shapes, "any head_dim, any block_size")
        self.assertEqual(self.declared(ab.merge_states(["fp32"], name="other")).name, "other")

    def test_what_is_served(self):
        flag = _contract.KernelFlag
        k = self.declared(ab.attention("packed", serves="decode prefill", never="strides", padding="finite"))
        self.assertEqual(k.flags, flag.SERVES_DECODE | flag.SERVES_PREFILL | flag.DENSE_INPUTS | flag.FINITE_PADDING)
        k = self.declared(ab.attention_backward("packed", never="empty_rows idle_sequences short_kv"))
        self.assertEqual(k.flags, flag.NO_EMPTY_ROWS | flag.NO_IDLE_SEQUENCES | flag.NO_SHORT_KV)
        self.assertEqual(self.declared(ab.merge_states("bf16", serves="merge")).flags, flag.NO_EMPTY_ROWS)

    def test_refusals(self):
        k = self.declared(ab.attention("packed paged bf16", head_dim=range(8, 17), block_size=(16, 32)))
        self.assertIsNone(k.refusal(AttentionParams(head_dim=16, features=Feature.PACKED_KV)))
        self.assertEqual(k.refusal(AttentionParams(head_dim=7)), "named: head_dim 8..16 required, given 7")
        self.assertEqual(k.refusal(AttentionParams(head_dim=8, block_size=8, features=Feature.PAGED_KV)),
                         "named: block_size 16, 32 required, given 8")

    def test_mistakes(self):
        for options, text in ((dict(features="packed casual"), "features='casual': did you mean 'causal'. one of alibi, .* required"),
                              (dict(features="packed", device="gpu"), "device='gpu': one of cpu, cuda required"),
                              (dict(features="packed", acc="fp8"), "acc='fp8': one of bf16, .* required"),
                              (dict(features="packed", lse="base10"), "lse='base10': one of .*base2.* required"),
                              (dict(features="packed", lse="token_major"), 'lse="token_major" needs returns=True'),
                              (dict(features="packed", padding="zero"), "padding='zero': one of finite, nan required"),
                              (dict(features="packed", serves="decodes"), "serves='decodes': did you mean 'decode'. one of append, decode, prefill"),
                              (dict(features="packed", serves="merge"), "serves='merge': one of append, decode, prefill required"),
                              (dict(features="packed", never="nan"), "never='nan': one of empty_rows, idle_sequences, short_kv, strides required"),
                              (dict(features="packed", acc_input="bf16"), "acc_input='bf16': one of fp32, tf32 required")):
            with self.assertRaisesRegex(ValueError, text):
                self.declared(ab.attention(**options))
        with self.assertRaisesRegex(TypeError, "kv_append.. got an unexpected keyword argument 'heads'"):
            ab.kv_append("bf16", heads=2)
        with self.assertRaisesRegex(ValueError, "returns and lse are options of attention only"):
            self.declared(ab.kv_append("bf16", lse="none"))
        for decorator, text in ((ab.kv_append("bf16", serves="append"), "serves is an option of attention, attention_backward and merge_states only"),
                                (ab.kv_move("bf16", padding="finite"), "padding is an option of attention, attention_backward and merge_states only"),
                                (ab.merge_states("bf16", never="short_kv"), "is for attention and attention_backward only"),
                                (ab.merge_states("bf16", serves="decode"), "serves='decode': one of merge required"),
                                (ab.attention_backward("bf16", acc_input="tf32"), "is an option of attention only"),
                                (ab.attention_backward("bf16", p="q"), "p='q': one of .* required")):
            with self.assertRaisesRegex(ValueError, text):
                self.declared(decorator)
        with self.assertRaisesRegex(TypeError, 'attention needs features: @attnbench.attention\\("packed bf16"\\)'):
            ab.attention(self.declared)


if __name__ == "__main__":
    unittest.main()
