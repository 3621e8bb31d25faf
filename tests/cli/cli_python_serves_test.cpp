// Kernels in Python that serve a part of attention, as servers have them: cases that they are spared, what records say of
// it, and decode in Triton's interpreter.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/cli/python.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliServes : public PythonTest {
 protected:
  json numerics(const std::string& kernel) { return records[kernel]["check"]["numerics"]; }
};

TEST_F(CliServes, OtherCasesAreSkippedAndRecordsSaySo) {
  const std::string file = python_fixture("serves.py");
  const auto run_case = [&](const std::string& mapping) {
    std::vector<std::string> args = {"--case", mapping, "--check", "full,invariants"};
    for (const char* kernel : {"cpu", "only_decode", "only_prefill_and_decode", "only_plain"})
      args.insert(args.end(), {"--kernel", kernel});
    return run(file, args);
  };
  Outcome o = run_case("{batch: q1s9_q1s1_q1s30, heads: 4/2, head_dim: 8}");
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  for (const char* name : {"only_decode", "only_prefill_and_decode", "only_plain"})
    EXPECT_EQ(records[name]["status"], "pass") << name << records[name];
  EXPECT_EQ(numerics("only_decode")["serves_decode"], true);
  EXPECT_FALSE(numerics("only_decode").contains("dense_inputs"));
  EXPECT_FALSE(numerics("cpu").contains("serves_decode"));
  EXPECT_THAT(
      o.out,
      AllOf(
          HasSubstr(
              "only_decode: 1 of 1 case run, declares acc fp32, p fp32, exp_rel_err 2^-22, serves decode\n"),
          HasSubstr("no empty rows, no idle sequences, no short KV, dense inputs")));
  const auto& invariants = records["only_plain"]["check"]["invariants"];
  const auto strides = std::ranges::find_if(invariants, [](const json& i) { return i["name"] == "strides"; });
  ASSERT_NE(strides, invariants.end());
  EXPECT_EQ((*strides)["outcome"], "skipped");
  EXPECT_EQ((*strides)["note"], "only_plain: dense inputs required, given gaps between rows and heads");

  run_case("{batch: q9_q3s9_q1s0, heads: 4/2, head_dim: 8, mask: none}");
  EXPECT_EQ(
      reason("only_decode"),
      "only_decode: serves decode: one query per sequence required, given 9 queries of 9 keys (sequence 0)");
  EXPECT_THAT(reason("only_prefill_and_decode"),
              HasSubstr("serves decode, prefill: one query per sequence or as many"));
  EXPECT_EQ(reason("only_plain"),
            "only_plain: no more queries than keys required, given 1 queries of 0 keys (sequence 2)");
  for (const char* name : {"only_decode", "only_prefill_and_decode", "only_plain"})
    EXPECT_EQ(records[name]["status"], "skip");

  run_case("{batch: q9_q17, heads: 4/2, head_dim: 8}");
  EXPECT_EQ(records["only_prefill_and_decode"]["status"], "pass") << records["only_prefill_and_decode"];
  EXPECT_THAT(run_attnbench(scratch, {"kernels", "--plugin", file}).out,
              AllOf(HasSubstr("    limits    serves decode\n"),
                    HasSubstr("    limits    serves decode, serves prefill\n")));
}

TEST_F(CliServes, MergesMayLackNaNAndStrides) {
  const std::string file = python_fixture("serves.py");
  run(file,
      {"--case",
       "{op: merge_states, batch: q9, states: 7, empty_states: 0.3, heads: 2, head_dim: 8, partial_lse: dense}"});
  EXPECT_EQ(records["only_merges"]["status"], "pass") << records["only_merges"];
  EXPECT_EQ(numerics("only_merges")["finite_padding"], true);
  EXPECT_EQ(numerics("only_merges")["no_empty_rows"], true);
  EXPECT_EQ(records["meets_nan"]["status"], "fail")
      << "states without keys hold NaN unless the kernel says otherwise";
  run(file, {"--case", "{op: merge_states, batch: q9, states: 7, empty_states: 0, heads: 2, head_dim: 8}"});
  EXPECT_EQ(reason("only_merges"), "only_merges: partial_lse: dense required, given strided");
  EXPECT_EQ(records["meets_nan"]["status"], "pass") << records["meets_nan"];
  run(file, {"--case", "{op: merge_states, batch: q9, states: 2, empty_states: 1, heads: 2, head_dim: 8}"});
  EXPECT_EQ(reason("meets_nan"), "meets_nan: rows with states required; row 0 head 0 has none");
}

TEST_F(CliServes, PHasTheTypeOfQWhereKAndVAreDequantised) {
  run(python_fixture("serves.py"),
      {"--case", "{batch: q9, heads: 2, head_dim: 8, kv_dtype: e4m3}", "--kernel", "rounds_p_like_q"});
  EXPECT_EQ(numerics("rounds_p_like_q")["p"], "bf16") << records["rounds_p_like_q"];
}

TEST_F(CliServes, ProductsInTf32AreRightIfTheyAreDeclared) {
  const std::string file = python_fixture("serves.py");
  for (const char* data : {"normal", "peaked", "large", "outlier"}) {
    run(file,
        {"--case",
         std::string("{batch: q65s300_q1s200, heads: 4/2, head_dim: 64, dtype: fp32, mask: none, data: ") +
             data + "}"});
    EXPECT_EQ(records["says_tf32"]["status"], "pass") << data << records["says_tf32"];
    EXPECT_EQ(numerics("says_tf32")["input_roundoff"], 0x1p-10);
    EXPECT_EQ(records["hides_tf32"]["status"], "fail") << data;
  }
  const Outcome o = run(file, {"--case", "{batch: q9, heads: 2, head_dim: 8, dtype: fp32, mask: none}",
                               "--kernel", "says_tf32", "--require", "input_roundoff=0"});
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_THAT(reason("says_tf32"),
              HasSubstr("declares input_roundoff 2^-10, and --require asks for 0 at most"));
  run(file, {"--case", "{batch: q9, heads: 2, head_dim: 8, mask: none}", "--kernel", "says_tf32"});
  EXPECT_EQ(numerics("says_tf32")["input_roundoff"], 0) << "q and K in bf16 lose nothing as operands";
}

/// With a python3 that has torch and Triton 3.9.
class CliInterpreter : public PythonTest {
 protected:
  void SetUp() override {
    PythonTest::SetUp();
    if (IsSkipped()) return;
    constexpr const char* kHasTriton =
        "python3 -c 'import torch, triton; assert triton.__version__ >= \"3.9\"' > /dev/null 2>&1";
    if (std::system(kHasTriton) != 0) GTEST_SKIP() << "no python3 with torch and Triton 3.9";
    setenv("TRITON_INTERPRET", "1", 1);
  }
  void TearDown() override { unsetenv("TRITON_INTERPRET"); }
};

TEST_F(CliInterpreter, DecodeOverPagesAndLatentRowsIsRight) {
  const std::string file = python_fixture("triton_decode.py");
  Outcome o =
      run(file,
          {"--case",
           "{kv: paged, batch: q1s70_q1s1_q1s16, heads: 8/2, head_dim: 16, block_size: 16, dtype: fp16}",
           "--case", "{kv: paged, batch: q1s70_q1s5, heads: 4/4, head_dim: 32, block_size: 32, dtype: fp16}",
           "--kernel", "paged_decode", "--check", "full,invariants"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("2 passed, 0 failed, 0 skipped, 0 errors"));
  o = run(
      file,
      {"--case",
       "{kv: paged, batch: q1s40_q1s7, heads: 16/1, head_dim: 48, head_dim_v: 32, v_is_k_view: true, dtype: fp16}",
       "--kernel", "latent_decode"});
  EXPECT_EQ(records["latent_decode"]["status"], "pass") << records["latent_decode"];
}

TEST_F(CliInterpreter, CasesHaveNoBf16) {
  const std::string file = python_fixture("triton_decode.py");
  const std::string bf16 = "{kv: paged, batch: q1s20, heads: 4/2, head_dim: 16, dtype: bf16}";
  Outcome o = run(file, {"--case", bf16, "--kernel", "paged_decode"});
  EXPECT_EQ(records["paged_decode"]["status"], "pass") << records["paged_decode"];
  EXPECT_THAT(records["paged_decode"]["id"].get<std::string>(), HasSubstr("/fp16/"));
  EXPECT_THAT(
      o.err,
      HasSubstr(
          "note: TRITON_INTERPRET=1: all cases have dtype=fp16, because Triton's interpreter computes wrong "
          "products of bf16; --set dtype=... chooses another type\n"));
  run(file, {"--case", bf16, "--kernel", "paged_decode", "--set", "dtype=bf16"});
  EXPECT_EQ(
      reason("paged_decode"),
      "paged_decode: Triton's interpreter computes wrong products of bf16; dtype: fp16 or fp32 required");
  unsetenv("TRITON_INTERPRET");
  EXPECT_THAT(run_attnbench(scratch, {"list", "--case", bf16, "--plugin", file}).err,
              Not(HasSubstr("TRITON_INTERPRET")));
}

}  // namespace
}  // namespace attnbench::testing
