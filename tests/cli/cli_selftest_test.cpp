// attnbench selftest: every fault is caught on the cpu kernels, every clean run passes, and a wrong kernel
// fails the selftest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "harness/device/sanitized.h"
#include "tests/cli/pins.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CliSelftest, NoFaultOfThisNameIsSix) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"selftest", "--device", "cpu", "--filter", "^nope$"});
  EXPECT_EQ(o.exit_code, 6);
  EXPECT_THAT(o.err, HasSubstr("no fault that applies matches --filter '^nope$'"));
}

TEST(CliSelftest, SaysWhichFaultsASweepCatches) {
  const Scratch scratch;
  scratch.write("mine.yaml",
                "name: mine\ndefaults: {heads: 2, head_dim: 8, mask: causal}\nsweeps: [{batch: [q1, q9]}]\n");
  const Outcome o =
      run_attnbench(scratch, {"selftest", "mine.yaml", "--device", "cpu", "--kernel", "cpu", "--filter",
                              "^mask/(causal_one_ahead|chunk_ignored)$", "--out", "out"});
  EXPECT_EQ(o.exit_code, 1) << o.err;
  EXPECT_THAT(o.out, HasSubstr("escaped: mask/chunk_ignored on cpu"));
  EXPECT_THAT(o.out, HasSubstr("1 of 2 faults caught"));
  const json faults = read_json(scratch.dir() / "out" / "selftest.json")["faults"];
  ASSERT_EQ(faults.size(), 2u) << "one entry for a fault, however many cases it ran on";
  EXPECT_EQ(faults[0]["case"], "attention/packed/bf16/h2-2/d8/causal/q9")
      << "a single query sees no key ahead";
  EXPECT_EQ(run_attnbench(scratch, {"selftest", "mine.yaml", "--sensitivity"}).exit_code, 2);
}

TEST(CliSelftest, CluesNameMostFaultsAndHardlyAnyOther) {
  if (kSanitized) GTEST_SKIP() << "takes minutes";
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"selftest", "--device", "cpu", "--kernel", "cpu", "--clues",
                                            "--seeds", "1", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  const json result = read_json(scratch.dir() / "out" / "clues.json");
  double named = 0, faults = 0, misnamed = 0, cases = 0;
  for (const json& f : result["faults"]) {
    ++faults;
    named += f["named"] > 0;
    misnamed += f["misnamed"].get<double>();
    cases += f["cases"].get<double>();
  }
  EXPECT_GE(faults, 280);
  EXPECT_GE(named / faults, 0.9) << o.out;
  EXPECT_LT(misnamed / cases, 0.01) << o.out;
}

TEST(CliSelftest, EveryFaultIsCaughtAndNoCleanRunFails) {
  ASSERT_EQ(setenv("OMP_NUM_THREADS", "2", 1), 0);  // sums of huge errors depend on their order
  const Scratch scratch;
  const Outcome o = run_attnbench(
      scratch, {"selftest", "--device", "cpu", "--seeds", "2", "-q", "--format", "json,md", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const json result = read_json(scratch.dir() / "out" / "selftest.json");
  std::set<std::string> classes;
  std::map<std::string, std::set<std::string>> by_detector;  // what each detector caught
  int thought_well = 0;
  int naive = 0;
  std::size_t on_cpu = 0;
  std::vector<std::string> lines;
  double detectors = 0;
  for (const json& f : result["faults"]) {
    // Some of the detectors of a fault that reads foreign memory depend on what lies there.
    lines.push_back(json{f["kernel"], f["name"], f["case"], f["outcome"]}.dump());
    detectors += static_cast<double>(f["caught_by"].size());
    if (f["kernel"] != "cpu") {  // a kernel of fewer features refuses some
      EXPECT_THAT(f["outcome"], ::testing::AnyOf("caught", "not applicable")) << f.dump();
      continue;
    }
    ++on_cpu;
    EXPECT_EQ(f["outcome"], "caught") << f.dump();
    EXPECT_FALSE(f["caught_by"].empty()) << f["name"];
    // A refusal has no output that a rule of thumb could judge.
    EXPECT_EQ(f["allclose_1e2"].is_string(), f["class"] != "refusals") << f.dump();
    naive += f["twice_naive"].is_string();
    classes.insert(f["class"]);
    for (const json& d : f["caught_by"]) by_detector[d].insert(f["name"]);
    thought_well += f["allclose_1e2"] == "pass";
  }
  EXPECT_GE(on_cpu, 140u);
  EXPECT_GE(classes.size(), 20u);
  EXPECT_GE(naive, 80) << "the others are beyond what the host computes";
  EXPECT_GE(result["clean"]["runs"].get<int>(), 50);
  EXPECT_EQ(result["clean"]["false_alarms"], 0) << result["clean"]["alarms"].dump();
  EXPECT_GE(thought_well, 5) << "some faults are there because allclose does not see them";
  // Each check exists for a fault that it catches.
  const std::pair<const char*, const char*> reasons[] = {
      {"poison", "page_tail_times_zero"},
      {"empty_row", "lse_plus_infinity"},
      {"max_z", "neighbours_page"},
      {"row_z2", "empty_split_counted"},
      {"bias", "scale_off_0_1_percent"},
      {"lse", "lse_in_log2"},
      {"cache_bits", "padding_token_written"},
      {"cache_bits", "computed_scale_not_stored"},
      {"cache_bits", "in_call_one_token_past_capacity"},
      {"query_out", "padding_query_written"},
      {"query_out", "query_turned_at_its_index"},
      {"guard", "workspace_overrun"},
      {"input_digest", "query_overwritten"},
      {"not_refused", "bad_heads_taken"},
      {"invariant:repeat", "rare_race"},
      {"invariant:page_shuffle", "depends_on_page_numbers"},
      {"invariant:strides", "v_has_the_strides_of_k"},
      {"invariant:strides", "append_values_have_the_strides_of_keys"},
      {"invariant:strides", "int8_k_descale_taken_as_dense"},
      {"invariant:strides", "slopes_taken_as_dense"},
      {"invariant:strides", "in_call_clears_behind_a_token"},
      {"invariant:strides", "append_caches_taken_as_dense"},
      {"invariant:strides", "append_given_scales_taken_as_dense"},
      {"invariant:strides", "append_given_head_scales_taken_as_dense"},
      {"invariant:strides", "append_computed_scales_taken_as_dense"},
      {"invariant:strides", "append_clears_behind_a_token_of_scales"},
      {"invariant:nhd_hnd", "depends_on_kv_layout"},
      {"invariant:lead_rows", "cu_seqlens_start_ignored"},
      {"invariant:packed_paged", "depends_on_paging"},
      {"invariant:batch_permutation", "depends_on_batch_order"},
      {"invariant:alone", "depends_on_batch_size"},
      {"invariant:merge", "prefix_state_wrong"},
      {"invariant:num_splits", "parts_past_the_planned_lost"},
  };
  for (const auto& [detector, fault] : reasons) {
    EXPECT_TRUE(by_detector[detector].count(fault)) << detector << " does not see " << fault;
  }
  EXPECT_THAT(read_text(scratch.dir() / "out" / "selftest.md"), HasSubstr(" clean runs, 0 failed"));
  expect_pinned("selftest", lines, detectors / static_cast<double>(lines.size()));
}

TEST(CliSelftest, AKernelThatIsWrongWithoutAFaultIsSaidSo) {
  const Scratch scratch;
  const Outcome o =
      run_faulty(scratch, {"selftest", "--device", "cpu", "--kernel", "scale_0_1_percent", "--filter",
                           "paging/stale_page", "--seeds", "1", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  const json clean = read_json(scratch.dir() / "out" / "selftest.json")["clean"];
  EXPECT_GT(clean["false_alarms"].get<int>(), 0);
  EXPECT_EQ(clean["alarms"].size(), clean["false_alarms"].get<std::size_t>());
  EXPECT_THAT(o.out, AllOf(HasSubstr("scale_0_1_percent is wrong without any fault, in "),
                           HasSubstr("make `attnbench run` pass first\n"),
                           HasSubstr("\n  reproduce: attnbench run --case '{op: attention"),
                           Not(HasSubstr("false alarm"))));
}

TEST(CliSelftest, ACrashIsSaidOnceWithItsReproducingLine) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer tells of the crash in its own words";
  const Scratch scratch;  // the launch of the fault lacks what the kernel ends at
  const Outcome o =
      run_faulty(scratch, {"selftest", "--device", "cpu", "--kernel", "segfaults_with_seqused_q", "--filter",
                           "/seqused_q_ignored", "--seeds", "1", "--out", "out"});
  EXPECT_EQ(o.exit_code, 5) << o.out << o.err;
  EXPECT_THAT(o.err, Not(HasSubstr("signal")));
  const std::string crash =
      "the worker process was killed by signal 11 (Segmentation fault) in launch of "
      "segfaults_with_seqused_q\n  reproduce: attnbench run --case ";
  EXPECT_THAT(o.out, AllOf(HasSubstr("segfaults_with_seqused_q is wrong without any fault, in 1 clean run"),
                           HasSubstr(crash), HasSubstr("--kernel segfaults_with_seqused_q")));
  EXPECT_EQ(o.out.find("signal 11"), o.out.rfind("signal 11"));
}

TEST(CliSelftest, ARefusalIsNotApplicable) {
  const Scratch scratch;
  const Outcome o = run_faulty(scratch, {"selftest", "--device", "cpu", "--kernel", "refuses", "--filter",
                                         "paging/stale_page", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 6) << o.out << o.err;
  const json fault = read_json(scratch.dir() / "out" / "selftest.json")["faults"].at(0);
  EXPECT_EQ(fault["outcome"], "not applicable");
  EXPECT_THAT(fault["reason"].get<std::string>(), HasSubstr("not in {64}"));
}

TEST(CliSelftest, SensitivityFindsThresholds) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"selftest", "--device", "cpu", "--kernel", "cpu", "--sensitivity",
                                            "--contexts", "512", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const json rows = read_json(scratch.dir() / "out" / "sensitivity.json")["sensitivity"];
  ASSERT_EQ(rows.size(), 6u) << "bf16, fp16, e4m3, each with P in fp32 and in 16 bits";
  for (const json& r : rows) {
    EXPECT_EQ(r["dropped_keys"]["smallest"], 1) << r.dump();
    EXPECT_LT(r["scale"]["smallest"].get<double>(), 5e-3) << r.dump();
    EXPECT_GT(r["scale"]["missed"].get<double>(), 0) << "what is missed bounds what is caught";
    EXPECT_LT(r["lse"]["smallest"].get<double>(), 1e-4) << r.dump();
  }
}

TEST(CliSelftest, SensitivityOfGradientsFindsThresholds) {
  const Scratch scratch;
  const Outcome o =
      run_attnbench(scratch, {"selftest", "--device", "cpu", "--kernel", "cpu", "--sensitivity", "--op",
                              "attention_backward", "--contexts", "512", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const json rows = read_json(scratch.dir() / "out" / "sensitivity.json")["sensitivity"];
  ASSERT_EQ(rows.size(), 5u) << "bf16 and fp16, each with P in fp32 and in 16 bits, and fp32";
  for (const json& r : rows) {
    EXPECT_LT(r["max_z"].get<double>(), 6) << r.dump();
    for (const char* fault : {"dropped_keys", "dropped_queries"})
      EXPECT_EQ(r[fault]["smallest"], 1) << r.dump();
    for (const char* fault : {"scale", "dq", "dk", "dv"}) {
      EXPECT_LT(r[fault]["smallest"].get<double>(), 2e-3) << r.dump();
      EXPECT_GT(r[fault]["missed"].get<double>(), 0) << "what is missed bounds what is caught";
    }
  }
}

}  // namespace
}  // namespace attnbench::testing
