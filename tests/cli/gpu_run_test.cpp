// The program on a GPU. Skips, with the reason, if no GPU works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class CliGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const Outcome o = run_attnbench(scratch_, {"doctor"});
    ASSERT_EQ(o.exit_code, 0) << o.err;
    const std::size_t absent = o.out.find("  absent ");
    if (absent != std::string::npos) GTEST_SKIP() << "no GPU: " << o.out.substr(absent + 9);
  }
  void expect_all_pass(const char* config) {
    const Outcome o = run_attnbench(
        scratch_, {"run", source_path(config), "--device", "cuda", "--no-time", "--out", "out"});
    EXPECT_EQ(o.exit_code, 0) << o.out;
    const auto records = read_records(scratch_.dir() / "out");
    EXPECT_FALSE(records.empty());
    for (const json& r : records) {
      EXPECT_THAT(r["status"].get<std::string>(), ::testing::AnyOf("pass", "skip")) << r["id"] << r["reason"];
    }
  }
  Scratch scratch_;
};

TEST_F(CliGpu, AutoTakesTheGpu) {
  const Outcome o = run_attnbench(scratch_, {"run", "--case", "{batch: 4q1s100, kv: paged}", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.err, Not(HasSubstr("device auto: cpu")));
  for (const json& r : read_records(scratch_.dir() / "out")) EXPECT_EQ(r["device"], "cuda:0");
}

TEST_F(CliGpu, GraphReplayIsTimed) {
  const Outcome o = run_attnbench(scratch_, {"run", "--case", "{batch: 4q1s100, kv: paged}", "--device",
                                             "cuda", "--kernel", "cuda_simt", "--graph", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_EQ(read_records(scratch_.dir() / "out").at(0)["time"]["graph"], true);
}

// A launch of a few microseconds takes longer if its code must be fetched first. What looks at a watched launch
// is other code too, so the kernel is trusted here.
TEST_F(CliGpu, ColdCodeCosts) {
  std::map<std::string, double> us;
  for (const std::string cache : {"cold_data", "cold"}) {
    const Outcome o = run_attnbench(
        scratch_, {"run", "--case", "{batch: 1q1s16, kv: paged, head_dim: 64}", "--device", "cuda",
                   "--kernel", "cuda_simt", "--no-ceilings", "--trust", "--cache", cache, "--out", cache});
    EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
    const json time = read_records(scratch_.dir() / cache).at(0)["time"];
    EXPECT_EQ(time["cache"], cache);
    EXPECT_EQ(time["code"], cache == "cold" ? "cold" : "warm");
    us[cache] = time["median_us"];
  }
  EXPECT_GT(us["cold"], us["cold_data"] + 0.5);
}

// In a decode with a cold cache, DRAM delivers the bytes that the model says are needed. A prefill reads keys again, from
// L2, and does more products with them. How much more differs from GPU to GPU.
TEST_F(CliGpu, CountersAgreeWithTheModel) {
  const Outcome o =
      run_attnbench(scratch_, {"run", "--case", "{batch: 32q1s4k, kv: paged, block_size: 64}", "--case",
                               "{batch: 2q4k}", "--device", "cuda", "--kernel", "sm90_decode,sm90_prefill",
                               "--no-ceilings", "--counters", "--out", "out"});
  const std::vector<json> records = read_records(scratch_.dir() / "out");
  const auto of = [&](const char* kernel, const char* batch) {
    for (const json& record : records) {
      if (record["kernel"] == kernel && record["id"].get<std::string>().ends_with(batch)) return record;
    }
    return json();
  };
  const json r = of("sm90_decode", "32q1s4k"), prefill = of("sm90_prefill", "2q4k");
  if (r["status"] == "skip") GTEST_SKIP() << r["reason"];
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const json& c = r["counters"];
  if (!c["reason"].get<std::string>().empty()) {
    EXPECT_THAT(o.err, HasSubstr(c["reason"].get<std::string>()));
    GTEST_SKIP() << c["reason"];
  }
  const double model = r["bytes"];
  EXPECT_NEAR(c["dram_read_bytes"].get<double>() / model, 1, 0.05);
  EXPECT_NEAR(c["dram_over_model"].get<double>(), 1, 0.05);
  for (const char* share : {"tensor_active_percent", "l2_hit_percent"}) {
    EXPECT_GE(c[share].get<double>(), 0) << share;
    EXPECT_GT(prefill["counters"][share].get<double>(), c[share].get<double>()) << share;
    EXPECT_LT(prefill["counters"][share].get<double>(), 100) << share;
  }
  EXPECT_GE(c["launches"].get<int>(), 1);
}

// Sequences cut into few parts, whose blocks wait for each other's results. A replay with shorter sequences
// must find nothing left over.
TEST_F(CliGpu, DecodesInFewPartsHandOverAndLeaveNothing) {
  std::vector<std::string> args = {"run",         "--device",  "cuda",    "--kernel",
                                   "sm90_decode", "--no-time", "--check", "full,invariants",
                                   "--out",       "out"};
  for (const char* batch : {"4q1s4k", "q1s100_q1s3000_q1s700_q1s5000", "3q1s2000"}) {
    args.insert(args.end(),
                {"--case", std::string("{kv: paged, block_size: 64, heads: 32/8, head_dim: 128, batch: ") +
                               batch + "}"});
  }
  const Outcome o = run_attnbench(scratch_, args);
  const auto records = read_records(scratch_.dir() / "out");
  ASSERT_EQ(records.size(), 3u) << o.out << o.err;
  if (records[0]["status"] == "skip") GTEST_SKIP() << records[0]["reason"];
  EXPECT_EQ(o.exit_code, 0) << o.out;
}

// New rows that queries see, new rows that none sees, and new rows of a sequence without queries.
TEST_F(CliGpu, DecodesAppendInTheirOwnLaunch) {
  std::vector<std::string> args = {"run",         "--device",  "cuda",    "--kernel",
                                   "sm90_decode", "--no-time", "--check", "full,invariants",
                                   "--out",       "out"};
  for (const char* rest :
       {"kv: paged, block_size: 64, rotary: neox, batch: 4q1s1k",
        "kv: contiguous, rotary: interleaved, new_tokens: 90, window: '2,0', batch: q1s193_q0s130"}) {
    args.insert(args.end(),
                {"--case", std::string("{append: in_call, heads: 32/8, head_dim: 128, ") + rest + "}"});
  }
  const Outcome o = run_attnbench(scratch_, args);
  const auto records = read_records(scratch_.dir() / "out");
  ASSERT_EQ(records.size(), 2u) << o.out << o.err;
  if (records[0]["status"] == "skip") GTEST_SKIP() << records[0]["reason"];
  EXPECT_EQ(o.exit_code, 0) << o.out;
}

// The kernel runs in a process that maps tensors and nothing beside them, inputs for reading. It costs its case alone.
TEST_F(CliGpu, WhatAKernelMustNotTouchIsNotThere) {
  for (const std::string change : {"PAST", "HOLE", "STORE"}) {
    const std::string plugin = ATTNBENCH_PLUGIN_DIR "/oversteps_" + change + ".so";
    if (!std::filesystem::exists(plugin)) GTEST_SKIP() << "built without all CUDA kernels";
    const Outcome o = run_attnbench(
        scratch_,
        {"run", "--plugin", plugin, "--kernel", "oversteps,cuda_simt", "--device", "cuda", "--no-time",
         "--case", "{kv: paged, heads: 8, head_dim: 64, dtype: fp16, pool_blocks: 70000, batch: 1q1s100}",
         "--out", change});
    EXPECT_EQ(o.exit_code, 5) << o.out << o.err;
    for (const json& r : read_records(scratch_.dir() / change)) {
      const bool steps = r["kernel"] == "oversteps";
      EXPECT_EQ(r["status"], steps ? "error" : "pass") << r["reason"];
      const std::string reason = r["reason"].get<std::string>();
      EXPECT_EQ(reason.find("the memory beside a tensor is not there") != reason.npos, steps) << reason;
    }
  }
}

// Pools and tensors of 8 GiB and more, of which the launch uses little.
TEST_F(CliGpu, WhatNoLaunchUsesTakesNoMemory) {
  const std::vector<std::string> cases = {
      "{kv: paged, heads: 32, head_dim: 128, pool_blocks: 70000, batch: q1s300_q2s40_q0s9}",
      "{op: kv_append, kv: paged, heads: 32, head_dim: 128, pool_blocks: 70000, batch: 64q1s9}",
      "{op: kv_move, kv: paged, heads: 32, head_dim: 128, pool_blocks: 70000, batch: q0s40_q0s300}",
      "{heads: 64/8, head_dim: 128, gap_queries: 530000, batch: q3s70_q9}"};
  std::vector<std::string> args = {"run",      "--device",  "cuda",  "--no-time",
                                   "--kernel", "cuda_simt", "--out", "out"};
  for (const std::string& text : cases) args.insert(args.end(), {"--case", text});
  const Outcome o = run_attnbench(scratch_, args);
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const auto records = read_records(scratch_.dir() / "out");
  EXPECT_EQ(records.size(), cases.size());
  for (const json& r : records) EXPECT_EQ(r["status"], "pass") << r["id"] << r["reason"];
}

TEST_F(CliGpu, ASweepOutlivesItsKernels) {
  const std::string file = scratch_.write("f.yaml",
                                          "name: f\ndefaults: {batch: q5, heads: 2}\nsweeps:\n"
                                          "  - {name: before, head_dim: 8, gap_tokens: [0, 1, 2, 3, 4]}\n"
                                          "  - {name: bad, head_dim: 24}\n"
                                          "  - {name: after, head_dim: 16, gap_tokens: [0, 1, 2, 3]}\n");
  std::vector<std::string> args = {"run",       file, "--device", "cuda:0", "--no-time",
                                   "--timeout", "5",  "--out",    "out"};
  for (const char* kernel : {"cuda_simt", "illegal_address", "hangs", "overallocates"}) {
    args.insert(args.end(), {"--kernel", kernel});
  }
  const Outcome o = run_faulty(scratch_, args);
  EXPECT_EQ(o.exit_code, 5) << o.err;
  std::map<std::string, int> count;
  for (const json& r : read_records(scratch_.dir() / "out")) {
    ++count[r["status"]];
    if (r["status"] == "pass" || r["status"] == "skip") continue;
    const std::string kernel = r["kernel"];
    EXPECT_EQ(r["status"], kernel == "hangs" ? "timeout" : "error");
    EXPECT_THAT(r["reason"].get<std::string>(),
                HasSubstr(kernel == "illegal_address" ? "cudaErrorIllegalAddress"
                          : kernel == "hangs"         ? "no result within 5 s"
                                                      : "cudaErrorMemoryAllocation"))
        << kernel;
  }
  EXPECT_EQ(count["pass"], 10);
  EXPECT_EQ(count["skip"], 3 * 9);
  EXPECT_EQ(count["error"], 2);
  EXPECT_EQ(count["timeout"], 1);
}

TEST_F(CliGpu, TheGateNamesAWrongKernel) {
  const std::vector<std::string> common = {"gate",
                                           "--case",
                                           "{batch: 4q1s300, kv: paged}",
                                           "--device",
                                           "cuda:0",
                                           "--no-ceilings",
                                           "--match",
                                           "case",
                                           "--baseline",
                                           (scratch_.dir() / "b.json").string()};
  const auto gate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return run_faulty(scratch_, more);
  };
  const Outcome made = gate({"--kernel", "cuda_simt", "--update-baseline", "--runs", "2", "--out", "made"});
  ASSERT_EQ(made.exit_code, 0) << made.out << made.err;
  const Outcome wrong = gate({"--kernel", "scale_0_1_percent", "--out", "wrong"});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
  EXPECT_THAT(wrong.out, HasSubstr("1 incorrect"));
}

TEST_F(CliGpu, WhatDoesNotFitIsSkippedWithItsNumbers) {
  const Outcome o = run_attnbench(
      scratch_, {"run", "--case", "{batch: 100q1s1000k, kv: paged, heads: 32/32, head_dim: 128}", "--device",
                 "cuda:0", "--kernel", "cuda_simt", "--no-time", "--out", "out"});
  EXPECT_EQ(o.exit_code, 6) << o.out << o.err;
  const json r = read_records(scratch_.dir() / "out").at(0);
  EXPECT_EQ(r["status"], "skip");
  EXPECT_THAT(r["reason"].get<std::string>(),
              ::testing::ContainsRegex("needs [0-9.]+ GB of .*, [0-9.]+ GB are free"));
}

TEST_F(CliGpu, QuickstartIsCorrect) { expect_all_pass("configs/quickstart.yaml"); }
TEST_F(CliGpu, GoldenIsCorrect) { expect_all_pass("configs/golden.yaml"); }
TEST_F(CliGpu, SmokeIsCorrect) { expect_all_pass("configs/smoke.yaml"); }

}  // namespace
}  // namespace attnbench::testing
