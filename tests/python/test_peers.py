#!/usr/bin/env python3
"""Tests of kernels/peers and of the example in CuTe DSL: what each file declares, with stand-ins for the libraries, and
without them.

    ATTNBENCH=build/attnbench PYTHONPATH=harness/python python3 tests/python/test_peers.py
"""
import importlib.abc
import importlib.machinery
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

from attnbench import _host
from attnbench._contract import KernelFlag

PEERS = pathlib.Path(__file__).resolve().parent.parent.parent / "kernels" / "peers"
FILES = sorted(PEERS.glob("peer_*.py"))
CUTE = PEERS.parent / "examples" / "cute_kernel.py"
LIBRARIES = {"torch", "triton", "flash_attn", "flash_attn_interface", "vllm", "sglang", "lmdeploy", "lightllm", "flag_attn", "fla",
             "flashinfer", "flash_mla", "cudnn", "xformers", "sageattention", "cutlass", "cuda"}


class Library(types.ModuleType):
    """A module that has everything that is asked of it."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = unittest.mock.MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class Libraries(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """While it is entered, the libraries are stand-ins, or are not there."""

    def __init__(self, there):
        self.there = there

    def __enter__(self):
        self.hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in LIBRARIES}
        sys.meta_path.insert(0, self)

    def __exit__(self, *_):
        sys.meta_path.remove(self)
        for name in [n for n in sys.modules if n.split(".")[0] in LIBRARIES]:
            del sys.modules[name]
        sys.modules.update(self.hidden)

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in LIBRARIES:
            return None
        if not self.there:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Library(spec.name)

    def exec_module(self, module):
        pass


class PeersTest(unittest.TestCase):
    def test_each_file_declares_kernels_with_names_of_their_own(self):
        self.assertGreaterEqual(len(FILES), 13)
        owner = {}
        for file in FILES:
            with self.subTest(file.name), Libraries(there=True):
                kernels, _ = _host.load_file(str(file))
                self.assertTrue(kernels)
                for kernel in kernels:
                    self.assertRegex(kernel.name, r"^[a-z][a-z0-9_]*$")
                    self.assertNotIn(kernel.name, owner)
                    owner[kernel.name] = file.name
                    self.assertFalse(kernel.flags & (KernelFlag.DETERMINISTIC | KernelFlag.BATCH_INVARIANT), "as README.md says")

    def test_gradients_of_flash_attention_are_written_where_they_belong(self):
        calls = {"peer_flash_attn_backward": ("_flash_attn_varlen_backward", 6), "peer_flash_attn_3_backward": ("_flash_attn_backward", 12)}
        for name, (function, first) in calls.items():
            with self.subTest(name), Libraries(there=True):
                kernels, _ = _host.load_file(str(PEERS / f"{name}.py"))
                module = sys.modules[kernels[0].function.__module__]
                call = unittest.mock.MagicMock(batch=1, total_q=4, causal=1, window_left=-1, window_right=-1, softcap=0.0, alibi_sqrt=0,
                                               max_seqlen_k=4)
                call.torch = lambda names: [names.split()] if " " not in names else names.split()
                call.has = lambda word: False
                with unittest.mock.patch.object(module.call_views, "lengths", lambda c: ([4], [4])):
                    kernels[0].function(call)()
                given = getattr(module.flash, function).call_args.args
                self.assertEqual(given[:6], ("d_out", "q", "k", "v", "out", "lse"))
                self.assertEqual(given[first:first + 3], ("dq", "dk", "dv"))
                self.assertIn("cu_seqlens_k", given)
                self.assertEqual(kernels[0].head_grads, -1 if name == "peer_flash_attn_backward" else kernels[0].acc)
                with unittest.mock.patch.object(module.call_views, "lengths", lambda c: ([4], [0])):
                    self.assertRaises(sys.modules["attnbench"].Unsupported, kernels[0].function, call)
                with self.assertRaises(sys.modules["attnbench"].Unsupported):  # a softcap is the other kernel's
                    kernels[1].function(call)

    def test_without_its_library_each_file_says_what_to_install(self):
        for file in [*FILES, CUTE]:
            with self.subTest(file.name), Libraries(there=False), self.assertRaises(_host.LoadError) as raised:
                _host.load_file(str(file))
            self.assertRegex(raised.exception.absent, r"^not installed; pip install ")

    def test_the_cute_example_declares_one_kernel(self):
        with Libraries(there=True):
            kernels, _ = _host.load_file(str(CUTE))
        self.assertEqual([kernel.name for kernel in kernels], ["cute_rows"])

    def test_files_are_short_and_hide_no_library(self):
        for file in PEERS.glob("*.py"):
            self.assertNotIn(file.stem, LIBRARIES)
        for file in FILES:
            text = file.read_text()
            self.assertLessEqual(len(text.splitlines()), max(80, 20 * len(re.findall(r"^def [a-z]", text, re.M))), file.name)

    def test_files_of_a_package_are_imported_without_the_rest_of_it(self):
        with tempfile.TemporaryDirectory() as folder, Libraries(there=True), unittest.mock.patch.object(sys, "path", [folder, str(PEERS), *sys.path]):
            package = pathlib.Path(folder, "served")
            package.mkdir()
            (package / "__init__.py").write_text("raise ImportError('what a server needs')")
            (package / "kernels.py").write_text("from served.platform import is_rocm, words\nimport served.none\nfound = not is_rocm() and words\n")
            alone = importlib.import_module("alone")
            earlier = sys.modules["served"] = types.ModuleType("served")
            try:
                module, = alone.files("pip install served", "served.kernels", words=3)
                self.assertEqual(module.found, 3)
                self.assertIs(sys.modules["served"], earlier)
                self.assertNotIn("served.kernels", sys.modules)
                with self.assertRaisesRegex(ImportError, "not installed; pip install other"):
                    alone.files("pip install other", "other_server.kernels")
            finally:
                del sys.modules["served"], sys.modules["alone"]

    def test_the_readme_names_each_peer(self):
        rows = set(re.findall(r"^\| `(\w+)` \|", (PEERS / "README.md").read_text(), re.MULTILINE))
        self.assertEqual(rows, {file.stem.removeprefix("peer_") for file in FILES})

    def test_pytorch_passes_on_the_cpu(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("this python3 has no torch")
        case = "{batch: 3q5s9, heads: 4/2, head_dim: 64, mask: causal, dtype: %s}"
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([os.environ["ATTNBENCH"], "run", "--case", case % "bf16", "--case", case % "fp32", "--device", "cpu",
                                   "--no-time", "--peers", "torch_sdpa,flex_attention", "--python", sys.executable, "--out", folder],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            records = json.loads(pathlib.Path(folder, "results.json").read_text())["benchmarks"]
            backward = "{op: attention_backward, batch: q5_q9, heads: 4/2, head_dim: 64, mask: causal, dtype: %s}"
            done = subprocess.run([os.environ["ATTNBENCH"], "run", "--case", backward % "bf16", "--case", backward % "fp32", "--device",
                                   "cpu", "--no-time", "--peers", "torch_backward", "--python", sys.executable, "--out", folder],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("4 passed", done.stdout)
        passed = sorted(r["attnbench"]["kernel"] for r in records if r["attnbench"]["status"] == "pass")
        self.assertEqual(passed, sorted(["cpu", "torch_sdpa_flash", "torch_sdpa_math"] * 2 + ["flex_attention"]), done.stdout)


if __name__ == "__main__":
    unittest.main()
