// Deliberately wrong kernels (tests/faults) must be caught, and the reason must say where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

struct Fault {
  const char* kernel;
  const char* reason;    ///< a regular expression for the whole reason
  const char* detector;  ///< a detector that must have fired
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.kernel; }

constexpr const char* kRow = ".*seq [0-9]+ pos [0-9]+ head [0-9]+.*";

constexpr Fault kFaults[] = {
    {"drop_last_key", kRow, "row_z2"},
    {"scale_0_1_percent", "(.*seq [0-9]+ pos [0-9]+ head [0-9]+.*|O is biased.*)", "row_z2"},
    {"unwritten_row", "O of seq 1 pos 39 head 3 channel [0-9]+ is NaN, expected a finite number.*", "poison"},
    {"past_the_end",
     "the kernel (wrote to|touched) byte 0 of row 73 of out \\(it has 73 rows\\) in launch of .*", "guard"},
    {"overwrites_input", "the kernel (wrote to|touched) byte 0 of row 0 of q \\(an input\\) in launch of .*",
     "input_digest"},
    {"wrong_when_timed",
     "timed launch [0-9]+.*, unlike the verified launch: .*seq [0-9]+ pos [0-9]+ head [0-9]+.*",
     "timed_launch"},
};

class CliFault : public ::testing::TestWithParam<Fault> {
 protected:
  Scratch scratch_;
};

TEST_P(CliFault, IsCaughtOnEveryKvSource) {
  for (const char* kv : {"packed", "paged", "packed, gap_tokens: 2"}) {
    const std::string mapping =
        std::string("{heads: 4/2, head_dim: 32, dtype: fp32, mask: causal, batch: q33s70_q40s300, kv: ") +
        kv + "}";
    SCOPED_TRACE(mapping);
    const Outcome o =
        run_faulty(scratch_, {"run", "--case", mapping, "--device", "cpu", "--kernel", GetParam().kernel,
                              "--out", "out", "--format", "json,junit", "--max-samples", "10"});
    EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
    const auto records = read_records(scratch_.dir() / "out");
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0]["status"], "fail");
    const std::string reason = records[0]["reason"];
    EXPECT_THAT(reason, MatchesRegex(GetParam().reason));
    EXPECT_THAT(records[0]["check"]["failed_by"].get<std::vector<std::string>>(),
                ::testing::Contains(GetParam().detector));
    // People see the reason and the repro line; machines see a failure.
    EXPECT_THAT(o.out, AllOf(HasSubstr(reason), HasSubstr("reproduce: attnbench run --case"),
                             HasSubstr(GetParam().kernel)));
    const json entry = read_json(scratch_.dir() / "out" / "results.json")["benchmarks"][0];
    EXPECT_EQ(entry["error_occurred"], true);
    EXPECT_EQ(entry["real_time"], 0.0);
    EXPECT_THAT(read_text(scratch_.dir() / "out" / "junit.xml"), HasSubstr("failures=\"1\""));
  }
}

INSTANTIATE_TEST_SUITE_P(, CliFault, ::testing::ValuesIn(kFaults),
                         [](const auto& p) { return std::string(p.param.kernel); });

TEST(CliIgnored, SmokeSeesAKernelThatIgnoresATerm) {
  for (const char* kernel : {"ignores_alibi", "takes_slopes_of_sequence_0", "ignores_sinks"}) {
    const Scratch scratch;
    const Outcome o =
        run_faulty(scratch, {"run", source_path("configs/smoke.yaml"), "--device", "cpu", "--kernel", kernel,
                             "--filter", "paged.*(alibi|sinks)", "--no-time", "-q", "--out", "out"});
    EXPECT_EQ(o.exit_code, 1) << kernel << o.out << o.err;
    const std::string term = std::string(kernel).ends_with("sinks") ? "sinks" : "alibi";
    int failed = 0;
    for (const json& r : read_records(scratch.dir() / "out")) {
      if (r["status"] != "fail") continue;
      ++failed;
      EXPECT_THAT(r["id"].get<std::string>(), HasSubstr(term)) << kernel;
    }
    EXPECT_GE(failed, std::string(kernel) == "takes_slopes_of_sequence_0" ? 1 : 2) << kernel;
  }
}

TEST(CliMaximum, SmokeSeesOneThatStartsTooHigh) {
  for (const auto& [kernel, start] :
       {std::pair{"maximum_from_0", "starts at 0"}, {"maximum_from_minus_5e4", "starts at -50000"}}) {
    const Scratch scratch;
    const Outcome o =
        run_faulty(scratch, {"run", source_path("configs/smoke.yaml"), "--device", "cpu", "--kernel", kernel,
                             "--filter", "attention.*/huge", "--no-time", "-q", "--out", "out"});
    EXPECT_EQ(o.exit_code, 1) << kernel << o.out << o.err;
    int failed = 0, named = 0;
    for (const json& r : read_records(scratch.dir() / "out")) {
      failed += r["status"] == "fail";
      named += r.dump().find(start) != std::string::npos;
    }
    EXPECT_GE(failed, 8) << kernel;
    EXPECT_GE(named, 4) << kernel << ": the clues say where the maximum starts";
  }
}

struct Wrap {
  const char *kernel, *words, *filter;
};
constexpr Wrap kWraps[] = {
    {"wraps_block", "of k, which is no row of the case: block [0-9]+ x stride 65536 wraps at 2\\^32",
     "pool70000/bf16/h32-"},
    {"wraps_block_id", "block [0-9]+ x stride 65536 wraps at 2\\^32 \\(or its id at 2\\^16\\)",
     "pool70000/bf16/h32-"},
    {"wraps_cache_row", "block [0-9]+ x stride [0-9]+ wraps at 2\\^32", "contiguous.*1050q0"},
    {"wraps_token", "row [0-9]+ x stride 8192 wraps at 2\\^32", "gap140000"},
    {"wraps_output", "wrote to .* of out, .*: row [0-9]+ x stride 8192 wraps at 2\\^32", "gapq"},
    {"wraps_sequence", "indices of sequences are cut to 16 bits", "65600q1$"},
    {"wraps_key", "indices of keys are cut to 16 bits", "packed.*q2s65600"},
    {"wraps_head", "indices of heads are cut to 8 bits", "h1024-1024"},
    {"wraps_packed_row", "the wrong rows are of pos 923 to 929 of seq 0", "h71-1"},
    {"wraps_slot", "wrote to .* of k_cache, .* block [0-9]+ x stride 65536 wraps at 2\\^32",
     "pool70000.*64q1s9"},
    {"wraps_move", "of k_dst, .* block [0-9]+ x stride 65536 wraps at 2\\^32", "pool70000.*blocks/q0s40"},
};
TEST(CliWraps, SmokeSeesIndicesAndOffsetsOfTooFewBits) {
  for (const Wrap& w : kWraps) {
    SCOPED_TRACE(w.kernel);
    const Scratch scratch;
    const Outcome o =
        run_faulty(scratch, {"run", source_path("configs/smoke.yaml"), "--device", "cpu", "--kernel",
                             w.kernel, "--filter", w.filter, "--no-time", "--out", "out"});
    EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
    EXPECT_THAT(o.out, ::testing::ContainsRegex(w.words));
  }
}

TEST(CliFaultClues, StandUnderTheReasonAndInTheReports) {
  const Scratch scratch;
  const Outcome o =
      run_faulty(scratch, {"run", "--case", "{batch: 2q9s40_q3s7}", "--device", "cpu", "--kernel",
                           "drop_last_key", "--no-time", "--out", "out", "--format", "md,junit"});
  const std::string clue =
      "looks like: the last key of each sequence is left out (all 64 wrong rows tried match";
  EXPECT_THAT(o.out, AllOf(HasSubstr("672 of 672 rows looked at are wrong, in O and LSE"), HasSubstr(clue)));
  EXPECT_THAT(read_records(scratch.dir() / "out").at(0)["check"]["clues"].get<std::vector<std::string>>(),
              ::testing::Contains(HasSubstr(clue)));
  for (const char* file : {"results.md", "junit.xml"})
    EXPECT_THAT(read_text(scratch.dir() / "out" / file), HasSubstr(clue)) << file;
}

TEST(CliFaultClues, AScaleThatIsSlightlyOffIsNamed) {
  const Scratch scratch;
  const Outcome o = run_faulty(scratch, {"run", "--case", "{batch: 2q9s40_q3s7}", "--device", "cpu",
                                         "--kernel", "scale_0_1_percent", "--no-time", "--out", "out"});
  EXPECT_THAT(o.out, HasSubstr("  looks like: logits times 1.001 (softmax_scale 0.08848 in place of 0.08839) "
                               "(all 64 wrong rows tried match this mistake)\n"));
}

TEST(CliFaultClues, ASecondLaunchTellsARaceFromAFormula) {
  const auto clues = [](const char* kernel) {
    const Scratch scratch;
    run_faulty(scratch, {"run", "--case", "{batch: 2q9s40_q3s7}", "--device", "cpu", "--kernel", kernel,
                         "--no-time", "--out", "out"});
    const json record = read_records(scratch.dir() / "out").at(0);
    EXPECT_EQ(record["status"], "fail") << kernel;
    return record["check"]["clues"].dump();
  };
  EXPECT_THAT(clues("drop_last_key"),
              AllOf(HasSubstr("rows looked at are wrong, in O and LSE; typical error"),
                    HasSubstr(" %; a second launch gave the same bits"), Not(HasSubstr("a race"))));
  EXPECT_THAT(clues("races"),
              AllOf(HasSubstr("a second launch on the same inputs gave other numbers (O of seq 0 "
                              "pos 0 head 0 channel 0"),
                    HasSubstr("): a race, or memory that the kernel reads before it writes it"),
                    Not(HasSubstr("same bits"))));
  EXPECT_THAT(clues("wrong_at_first"),
              HasSubstr("a second launch on the same inputs was right: a race, or "));
  const auto read = HasSubstr("must not be read");
  EXPECT_THAT(clues("unwritten_row"),
              AllOf(HasSubstr("[\"128 elements of O were not written when the launch ended"),
                    HasSubstr(": they are 0 in a launch"), Not(read)));
  EXPECT_THAT(clues("nan_row"),
              AllOf(HasSubstr("NaN is computed, whatever is read: it is there without poison"), Not(read)));
  EXPECT_THAT(clues("past_the_end"), Not(HasSubstr("second launch"))) << "what lies beside is damaged";
  EXPECT_THAT(clues("wrong_and_fails"), HasSubstr("a second launch on the same inputs failed: "));
}

TEST(CliFaultClues, TenFailingCasesOfARunGetExperiments) {
  for (const char* where : {"", "--in-process"}) {
    const Scratch scratch;
    const std::string file =
        scratch.write("f.yaml",
                      "name: f\nsweeps: [{batch: [q1s2, q1s3, q1s4, q2s5, q2s6, q2s7, q3s8, q3s9, q3s10, "
                      "q4s11, q4s12, q4s13], heads: 2, head_dim: 32, kv: packed}]\n");
    std::vector<std::string> args = {"run",     file,        "--device", "cpu", "--kernel",
                                     "nan_row", "--no-time", "--out",    "out"};
    if (*where != 0) args.emplace_back(where);
    run_faulty(scratch, args);
    int without = 0;
    for (const json& r : read_records(scratch.dir() / "out")) {
      EXPECT_EQ(r["status"], "fail");
      without += r["check"]["clues"].dump().find("no experiments looked for the cause") != std::string::npos;
    }
    EXPECT_EQ(without, 2) << where;
  }
}

TEST(CliFaultClues, ADamagedGuardStandsBesideTheWrongRows) {
  const Scratch scratch;
  const Outcome o =
      run_faulty(scratch, {"run", "--case", "{batch: 2q9s40_q3s7}", "--device", "cpu", "--kernel",
                           "wrong_and_before_the_start", "--no-time", "--out", "out"});
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("|z| ="), HasSubstr("rows looked at are wrong"),
                    HasSubstr("  also: 4 bytes written before the start of lse, ending right before it\n")));
  const json check = read_records(scratch.dir() / "out").at(0)["check"];
  EXPECT_THAT(check["clues"].at(0).get<std::string>(), HasSubstr("before the start of lse"));
  EXPECT_THAT(check["failed_by"].get<std::vector<std::string>>(), ::testing::Contains("guard"));
}

class CliDroppedKey : public ::testing::TestWithParam<const char*> {};

TEST_P(CliDroppedKey, IsSeenInLongRowsToo) {
  const Scratch scratch;
  const Outcome o = run_faulty(scratch, {"run", "--case", GetParam(), "--device", "cpu", "--kernel",
                                         "drop_last_key", "--no-time", "--out", "out"});
  EXPECT_EQ(o.exit_code, 1) << o.out;
  const json check = read_records(scratch.dir() / "out").at(0)["check"];
  EXPECT_EQ(check["pass"], false);
  EXPECT_GE(check["worst"]["seq"].get<int>(), 0);
  EXPECT_GE(check["worst"]["pos"].get<int>(), 0);
  EXPECT_TRUE(check["worst"]["got"].is_number());
  EXPECT_TRUE(check["worst"]["expected"].is_number());
  EXPECT_GT(std::max(check["max_z"].get<double>() / 6, check["max_row_z2"].get<double>()), 1);
}

/// One missing key among thousands, in the types that hide it best.
INSTANTIATE_TEST_SUITE_P(
    , CliDroppedKey,
    ::testing::Values("{dtype: bf16, heads: 8/2, head_dim: 64, batch: 4q1s2000, kv: paged}",
                      "{dtype: fp16, heads: 8/2, head_dim: 128, batch: 2q1s4k, kv: paged}",
                      "{dtype: bf16, heads: 8/8, head_dim: 128, batch: 2q256, mask: none}"),
    [](const auto& p) { return "Shape" + std::to_string(p.index); });

/// A kernel that is right only once passes without invariants and fails with them, wherever they are
/// requested.
TEST(CliInvariants, ASecondLaunchThatDiffersIsBroken) {
  const Scratch scratch;
  const std::string file = scratch.write(
      "f.yaml",
      "name: f\ncheck: [full, invariants]\nsweeps: [{batch: q40, heads: 2, head_dim: 64, dtype: fp32}]\n");
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"run",       file,    "--device", "cpu", "--kernel", "wrong_when_timed",
                                     "--no-time", "--out", "out"};
    args.insert(args.end(), more.begin(), more.end());
    return run_faulty(scratch, args).exit_code;
  };
  EXPECT_EQ(run({"--check", "full"}), 0) << "the command line wins over the file";
  EXPECT_EQ(run({}), 1) << "the file's check";
  EXPECT_EQ(run({"--check", "sampled,invariants"}), 1);
  const json r = read_records(scratch.dir() / "out").at(0);
  EXPECT_THAT(r["check"]["failed_by"].get<std::vector<std::string>>(),
              ::testing::Contains("invariant:repeat"));
  EXPECT_THAT(
      r["reason"].get<std::string>(),
      AllOf(
          HasSubstr(
              "invariant repeat (the same launch again; the launch of the case itself is right): launch 2 of 2"),
          HasSubstr("seq 0 pos 0 head 0 channel")));
  EXPECT_EQ(r["check"]["invariants"][0]["outcome"], "broken");
  EXPECT_THAT(r["repro"].get<std::string>(), HasSubstr("--check sampled,invariants"));
}

/// The checks of one file are neither applied to another file's cases nor missing from its own.
TEST(CliInvariants, FilesThatAreCheckedOtherwiseAreNotRunTogether) {
  const Scratch scratch;
  const auto write = [&](const std::string& name, const std::string& check, const std::string& batch) {
    return scratch.write(name + ".yaml", "name: " + name + check + "\nsweeps: [{batch: " + batch +
                                             ", heads: 2, head_dim: 64, dtype: fp32}]\n");
  };
  const std::string plain = write("plain", "", "q40"), sampled = write("same", "\ncheck: sampled", "q41"),
                    both = write("both", "\ncheck: [full, invariants]", "q42");
  const auto run = [&](std::vector<std::string> files) {
    std::vector<std::string> args = {"run",       "--device", "cpu", "--kernel", "wrong_when_timed",
                                     "--no-time", "--out",    "out"};
    args.insert(args.end(), files.begin(), files.end());
    return run_faulty(scratch, args);
  };
  using Files = std::vector<std::string>;
  for (const Files& files : {Files{plain, both}, Files{both, plain}, Files{sampled, both}}) {
    const Outcome o = run(files);
    EXPECT_EQ(o.exit_code, 2) << o.out;
    EXPECT_THAT(o.err, AllOf(HasSubstr("both.yaml"), HasSubstr("full,invariants"),
                             HasSubstr("give --check for all")));
  }
  EXPECT_NE(run({plain, sampled}).exit_code, 2);
  EXPECT_EQ(run({plain, both, "--check", "sampled,invariants"}).exit_code, 1);
  EXPECT_EQ(read_records(scratch.dir() / "out").size(), 2u);
}

TEST(CliExitCodes, DeviceErrorIsFiveWithItsMessage) {
  const Scratch scratch;
  const Outcome o = run_faulty(scratch, {"run", "--case", "{batch: q5, heads: 2, head_dim: 8}", "--device",
                                         "cpu", "--kernel", "throws_status", "--no-time", "--out", "out"});
  EXPECT_EQ(o.exit_code, 5) << o.out << o.err;
  const json r = read_records(scratch.dir() / "out").at(0);
  EXPECT_EQ(r["status"], "error");
  EXPECT_THAT(r["reason"].get<std::string>(),
              AllOf(HasSubstr("throws_status"), HasSubstr("stream fell over")));
}

TEST(CliExitCodes, RefusalIsASkipAndNothingRanIsSix) {
  const Scratch scratch;
  const Outcome o = run_faulty(scratch, {"run", "--case", "{batch: q5, heads: 2, head_dim: 8}", "--device",
                                         "cpu", "--kernel", "refuses", "--no-time", "--out", "out"});
  EXPECT_EQ(o.exit_code, 6) << o.out << o.err;
  const json r = read_records(scratch.dir() / "out").at(0);
  EXPECT_EQ(r["status"], "skip");
  EXPECT_EQ(r["reason"], "refuses: head_dim 8 not in {64}");
  EXPECT_THAT(o.out, HasSubstr("head_dim 8 not in {64}"));
}

TEST(CliExitCodes, TheWorstWins) {
  const Scratch scratch;
  const auto code = [&](const std::vector<std::string>& kernels) {
    std::vector<std::string> args = {
        "run",      "--case", "{batch: q40, heads: 2, head_dim: 64, dtype: fp32}",
        "--device", "cpu",    "--no-time",
        "--out",    "out"};
    for (const std::string& k : kernels) args.insert(args.end(), {"--kernel", k});
    return run_faulty(scratch, args).exit_code;
  };
  EXPECT_EQ(code({"cpu"}), 0);
  EXPECT_EQ(code({"cpu", "drop_last_key"}), 1);
  EXPECT_EQ(code({"cpu", "drop_last_key", "throws_status"}), 5);
}

TEST(CliExitCodes, FailFastStopsAtTheFirstFailure) {
  const Scratch scratch;
  const std::string file =
      scratch.write("f.yaml", "name: f\nsweeps: [{batch: [q40, 2q40, 3q40], heads: 2, head_dim: 64}]\n");
  const Outcome o = run_faulty(scratch, {"run", file, "--device", "cpu", "--kernel", "drop_last_key",
                                         "--no-time", "--fail-fast", "--out", "out"});
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_EQ(read_records(scratch.dir() / "out").size(), 1u);
  EXPECT_EQ(read_json(scratch.dir() / "out" / "results.json")["context"]["attnbench"]["complete"], false);
}

}  // namespace
}  // namespace attnbench::testing
