"""Tests of tables that scripts/peers_tables.py makes."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import peers_tables  # noqa: E402


def times(**us):
    """What `attnbench compare --by kernel --format json` prints, of ids that end so."""
    return {"cases": [{"id": "attention/paged64-nhd-shuffled/bf16/" + end, "us": {"sm90_decode": t}} for end, t in us.items()]}


class DcpTest(unittest.TestCase):
    TWO = {"h64-8/d128/causal/q1s4k": 20.0, "h32-4/d128/causal/q1s4k": 18.0, "h64-8/d128/causal/dcp2x1-all_gather/q1s4k": 40.0,
           "h64-8/d128/causal/dcp2x1-fused/q1s4k": 16.0, "h64-1/d128/causal/q1s4k": 9.0, "h32-1/d128/causal/q1s4k": 8.0,
           "h64-1/d128/causal/dcp2x1-fused/q1s4k": 12.0, "h64-8/d128/causal/q1s8k": 25.0}

    def test_each_way_has_its_column_and_the_fastest_of_several_gpus_is_bold(self):
        data = times(**self.TWO)
        data["cases"].append({"id": "attention/paged64-nhd-shuffled/bf16/h64-8/d128/causal/dcp4x1-fused/q1s4k"})  # skipped
        head, _, rows = peers_tables.dcp(data)
        self.assertEqual(head, ["GPUs", "heads", "batch", "one GPU, us", "TP, us", "all_gather, us", "all_to_all, us", "fused, us"])
        self.assertEqual(rows, [["2", "64/8", "`q1s4k`", "20.0", "18.0", "40.0", "", "**16.0**"],
                                ["2", "64/1", "`q1s4k`", "9.0", "**8.0**", "", "", "12.0"]])

    def test_four_gpus_have_rows_and_a_way_more(self):
        four = {"h16-2/d128/causal/q1s4k": 15.0, "h64-8/d128/causal/dcp4x1-fused/q1s4k": 14.0, "h32-4/d128/causal/dcp2x1-fused/q1s4k": 13.0}
        head, _, rows = peers_tables.dcp(times(**self.TWO, **four))
        self.assertEqual(head[-1], "TP 2 x DCP 2, us")
        self.assertEqual(rows[-1], ["4", "64/8", "`q1s4k`", "20.0", "15.0", "", "", "14.0", "**13.0**"])
        self.assertEqual({len(row) for row in rows}, {len(head)})


class PublicKernelsTest(unittest.TestCase):
    def test_kernels_that_were_right_share_a_row(self):
        def kernel(name, **statuses):
            return {"kernel": name, "project": "served", "version": "1", "asked": sum(statuses.values()), "statuses": statuses,
                    "smallest_wrong": [{"status": "fail", "got": 1.5, "expected": 1, "sigma": 0.01}] if "fail" in statuses else []}
        _, _, rows = peers_tables.public_kernels({"kernels": [kernel("a", **{"pass": 3, "skip": 1}), kernel("b", **{"pass": 1, "fail": 2}), kernel("c", error=1)]})
        self.assertEqual(rows, [["served 1", "`a`, `c`", "5", "3", "0", "1", "1", ""],
                                ["served 1", "`b`", "3", "1", "2", "0", "0", "1.5 for 1, 50 sigma"]])

    def test_proofs_name_the_heads_that_read_the_wrong_kv_head(self):
        text = ("a GPU\n## decode_scores.py vllm\none: O is off by up to 1.085 % of its largest element, LSE by 7.1e-04\n"
                "two: O is off by up to 0.250 % of its largest element\n## grouped_heads.py vllm\nheads: [0, 2]\nheads: [0, 1]\n")
        self.assertEqual(peers_tables.public_proofs(text)[2], [["`decode_scores.py vllm`", "O 1.08 %, LSE 0.0007", "O 0.25 %"],
                                                               ["`grouped_heads.py vllm`", "heads 1 of 3 follow KV head 0 instead of 1", ""]])


if __name__ == "__main__":
    unittest.main()
