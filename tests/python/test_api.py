#!/usr/bin/env python3
"""Tests of attnbench.check and run, of the plug-in for pytest and of type hints.

    ATTNBENCH=build/attnbench PYTHONPATH=harness/python python3 tests/python/test_api.py
"""
import importlib.util
import inspect
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

if importlib.util.find_spec("numpy") is None:
    print("skipped: this python3 has no NumPy (Debian: python3-numpy)")
    sys.exit(77)

import attnbench as ab

HERE = os.path.dirname(os.path.abspath(__file__))


class CheckTest(unittest.TestCase):
    CASE = "{batch: q5, heads: 2, head_dim: 8, mask: causal}"

    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, HERE)
        import right
        import wrong
        cls.right, cls.wrong = right.mine, wrong.mine

    def test_a_correct_kernel(self):
        self.assertEqual(ab.check(self.right, case=self.CASE), 1)

    def test_scales_of_blocks(self):
        import scaled
        for keys in ("kv_dtype: nvfp4, heads: 4/2, head_dim: 64", "kv_dtype: fp8_ds_mla, heads: 4/1, head_dim: 320, head_dim_v: 256, v_is_k_view: true"):
            self.assertEqual(ab.check(scaled.mine, case=f"{{batch: q5s9_q3s40, {keys}, mask: causal}}"), 1)

    def test_a_wrong_kernel(self):
        with self.assertRaises(ab.CheckFailed) as failed:
            ab.check(self.wrong, case=self.CASE)
        self.assertIsInstance(failed.exception, AssertionError)
        text = str(failed.exception)
        self.assertTrue(text.startswith("mine: attnbench run failed\n"), text)
        self.assertRegex(text, r"\n  O of seq 0 pos \d head \d channel \d: got ")
        self.assertRegex(text, r"\n  reproduce: attnbench run --case .* --plugin .*/wrong\.py .*--python ")
        self.assertNotIn("report: ", text, "its folder is gone")

    def test_another_pass_does_not_make_it_right(self):
        with self.assertRaisesRegex(ab.CheckFailed, "\n1 passed, 1 failed"):
            ab.check(self.wrong, case=self.CASE, options="--kernel cpu")

    def test_no_case_ran(self):
        with self.assertRaisesRegex(ab.CheckFailed, "mine: no case ran\n.*mine: paged is not supported"):
            ab.check(self.right, case="{kv: paged, batch: q5, heads: 2, head_dim: 8}")

    def test_records(self):
        records = ab.run(self.wrong, case=self.CASE, options=["--no-time"])
        self.assertEqual([(r["attnbench"]["kernel"], r["attnbench"]["status"]) for r in records], [("mine", "fail")])

    def test_records_as_a_data_frame(self):
        records = ab.run(self.wrong, case=self.CASE, options=["--no-time"])
        pandas = types.SimpleNamespace(json_normalize=lambda rows: rows)
        with mock.patch.dict(sys.modules, {"pandas": pandas}):
            self.assertEqual(records.to_pandas(), list(records))
        if importlib.util.find_spec("pandas") is None:
            self.skipTest("this python3 has no pandas")
        self.assertEqual(list(records.to_pandas()["attnbench.status"]), ["fail"])

    def test_what_is_called_has_type_hints(self):
        self.assertTrue(pathlib.Path(ab.__file__).with_name("py.typed").exists())
        for function in (ab.attention, ab.check, ab.run, ab.need, ab.Call.has, ab.Call.torch, ab.Tensor.numpy):
            parameters = [p for name, p in inspect.signature(function).parameters.items() if name != "self"]
            self.assertNotIn(inspect.Parameter.empty, [p.annotation for p in parameters], function)
            self.assertIn("return", function.__annotations__, function)

    def test_the_version_is_that_of_the_build(self):
        text = pathlib.Path(HERE, "../../CMakeLists.txt").read_text()
        self.assertEqual(ab.__version__, re.search(r"project\(attnbench VERSION ([0-9.]+)", text)[1])
        with mock.patch.dict(os.environ, {"ATTNBENCH": "/nowhere/attnbench"}):
            self.assertFalse(hasattr(ab, "__version__"))

    def test_a_case_may_be_a_dict(self):
        self.assertEqual(ab.check(self.right, case={"batch": "q5", "heads": 2, "head_dim": 8, "mask": "causal"}), 1)

    @unittest.skipIf(importlib.util.find_spec("pytest") is None, "this python3 has no pytest")
    def test_pytest_shows_what_the_program_printed(self):
        with tempfile.TemporaryDirectory() as folder:
            test = pathlib.Path(folder, "test_mine.py")
            test.write_text(f"import attnbench as ab\nfrom wrong import mine\ndef test_mine():\n    ab.check(mine, case={self.CASE!r})\n")
            done = subprocess.run([sys.executable, "-m", "pytest", "-p", "attnbench.pytest_plugin", "-p", "no:cacheprovider", test], text=True,
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], HERE])}, stdout=subprocess.PIPE)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"\n.*test_mine\.py:4: mine: attnbench run failed\n")
        self.assertRegex(done.stdout, r"\n  \d+ of \d+ rows looked at are wrong, in O alone")
        self.assertRegex(done.stdout, r"\n  reproduce: attnbench run --case ")
        self.assertNotIn("Traceback", done.stdout)
        self.assertNotIn("_api.py", done.stdout)

    def test_mistakes(self):
        with self.assertRaisesRegex(TypeError, "is no kernel: a function with @attnbench.attention"):
            ab.check(len, case=self.CASE)
        with self.assertRaisesRegex(TypeError, "one of sweep .* and case .* is required"):
            ab.check(self.right)
        with self.assertRaisesRegex(RuntimeError, "attnbench run ended with exit code 2\n.*there is no such|exit code 2\n"):
            ab.run(self.right, "nowhere.yaml")


if __name__ == "__main__":
    unittest.main()
