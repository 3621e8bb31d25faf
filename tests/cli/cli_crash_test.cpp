// Kernels that crash, hang, end the process or take all memory. Each gives one case its status, and the sweep
// continues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <map>
#include <sstream>
#include <thread>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Fifty cases. The 25th has head_dim 24, the only one on which the kernels that end a process do so.
std::string fifty_cases() {
  std::string text =
      "name: fifty\nsweeps:\n  - {name: before, batch: q5, heads: 2, head_dim: 8, gap_tokens: [";
  for (int i = 0; i < 24; ++i) text += (i ? ", " : "") + std::to_string(i);
  text += "]}\n  - {name: bad, batch: q5, heads: 2, head_dim: 24}\n";
  text += "  - {name: after, batch: q5, heads: 2, head_dim: 16, gap_tokens: [";
  for (int i = 0; i < 25; ++i) text += (i ? ", " : "") + std::to_string(i);
  return text + "]}\n";
}

json record_of(const Scratch& scratch, const std::string& kernel, const std::string& folder = "out") {
  for (const json& r : read_records(scratch.dir() / folder)) {
    if (r["kernel"] == kernel && r["status"] != "skip") return r;
  }
  return {};
}

TEST(CliCrash, ASweepOutlivesItsKernels) {
  const Scratch scratch;
  const std::string file = scratch.write("fifty.yaml", fifty_cases());
  std::vector<std::string> args = {"run", file,    "--device", "cpu",      "--no-time",        "--timeout",
                                   "5",   "--out", "out",      "--format", "json,csv,md,junit"};
  for (const char* kernel : {"cpu", "segfaults", "hangs", "overallocates"})
    args.insert(args.end(), {"--kernel", kernel});
  const Outcome o = run_faulty(scratch, args);
  EXPECT_EQ(o.exit_code, 5) << o.err;
  std::map<std::string, int> count;
  const auto records = read_records(scratch.dir() / "out");
  for (const json& r : records) ++count[r["status"]];
  EXPECT_EQ(count["pass"], 50);
  EXPECT_EQ(count["skip"], 3 * 49);
  EXPECT_EQ(count["error"], 2);
  EXPECT_EQ(count["timeout"], 1);
  EXPECT_EQ(records.size(), 200u);
  for (std::size_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i]["index"], i);
  // A sanitizer replaces the signal by an exit code and a report, which is longer than the kept log.
  const char* last_words = kSanitized ? "Sanitizer" : "about to read address 8";
  EXPECT_THAT(record_of(scratch, "segfaults")["reason"].get<std::string>(),
              HasSubstr(kSanitized ? "exit code" : "was killed by signal 11 (Segmentation fault)"));
  EXPECT_THAT(record_of(scratch, "segfaults")["log"].get<std::string>(), HasSubstr(last_words));
  EXPECT_EQ(
      record_of(scratch, "hangs")["reason"],
      "no result within 5 s (--timeout): the first launch did not end, so it hung, or takes longer. Then raise "
      "--timeout, or take smaller cases (--set, --filter); its worker process was killed in launch of hangs");
  EXPECT_THAT(record_of(scratch, "hangs")["log"].get<std::string>(),
              StartsWith("attnbench: error: no end in"))
      << "and no empty line before it";
  EXPECT_THAT(record_of(scratch, "hangs")["repro"].get<std::string>(), HasSubstr(" --timeout 5"));
  EXPECT_THAT(o.err, HasSubstr("note: each further case that hangs waits as long: --timeout S waits less"));
  EXPECT_THAT(record_of(scratch, "overallocates")["reason"].get<std::string>(),
              HasSubstr(kSanitized ? "exit code" : "overallocates: launch failed: out of memory"));
  EXPECT_EQ(read_json(scratch.dir() / "out" / "results.json")["context"]["attnbench"]["complete"], true);
  // The output of the dying worker is shown to people too.
  EXPECT_THAT(read_text(scratch.dir() / "out" / "junit.xml"), HasSubstr(last_words));
  EXPECT_THAT(o.out, HasSubstr(last_words));
}

TEST(CliCrash, DuringTimingItSaysThatTheResultWasRight) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer ends the process with an exit code";
  const auto reason = [](const std::string& kernel, const std::vector<std::string>& more) {
    const Scratch scratch;
    std::vector<std::string> args = {"run",   "--case",    "{batch: q5, heads: 2, head_dim: 8}",
                                     "--out", "out",       "--device",
                                     "cpu",   "--kernel",  kernel,
                                     "-q",    "--timeout", "4"};
    args.insert(args.end(), more.begin(), more.end());
    EXPECT_EQ(run_faulty(scratch, args).exit_code, 5);
    return record_of(scratch, kernel)["reason"].get<std::string>();
  };
  const auto right = HasSubstr("(the check before it passed: the result was right)");
  EXPECT_THAT(reason("hangs_when_timed", {}),
              AllOf(HasSubstr("no result within 4 s (--timeout): timing did not end"), right));
  EXPECT_THAT(
      reason("hangs_when_timed", {"--check", "sampled,invariants"}),
      AllOf(Not(HasSubstr("timing")),  // the second launch is an invariant's
            ContainsRegex("the result of the first launch was right, and that launch took 0?[.0-9e-]+ s\\. "
                          "Invariant repeat \\(the same launch again\\) did not end, .*raise --timeout.* "
                          "killed in launch of hangs_when_timed")));
  EXPECT_THAT(
      reason("segfaults_when_timed", {}),
      AllOf(HasSubstr(
                "killed by signal 11 (Segmentation fault) in launch of segfaults_when_timed during timing"),
            right));
  EXPECT_THAT(
      reason("segfaults_when_timed", {"--check", "sampled,invariants"}),
      HasSubstr("in launch of segfaults_when_timed during invariant repeat (the same launch again), after a "
                "first launch that was right"));
  EXPECT_THAT(reason("segfaults_when_timed", {"--check", "off"}),
              HasSubstr("during timing (nothing was checked)"));
}

TEST(CliCrash, APagedCaseTellsOfJunkInItsBlockTable) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer ends the process with an exit code";
  const Scratch scratch;
  auto reason = [&, runs = 0](const std::string& kv) mutable {
    const std::string out = "run" + std::to_string(runs++);
    run_faulty(scratch, {"run", "--case", "{batch: q5, heads: 2, head_dim: 24, kv: " + kv + "}", "--device",
                         "cpu", "--no-time", "--kernel", "segfaults", "--out", out});
    return record_of(scratch, "segfaults", out)["reason"].get<std::string>();
  };
  EXPECT_THAT(reason("paged"),
              HasSubstr("lead anywhere; all others are junk on purpose. Rows begin block_table_stride"));
  EXPECT_THAT(reason("paged"), ::testing::Not(HasSubstr("window")));
  EXPECT_THAT(reason("paged, mask: causal, window: '2,0', expired: freed"),
              HasSubstr("without those of blocks that lie left of every query's window as a whole"));
  EXPECT_THAT(reason("packed"), ::testing::Not(HasSubstr("block_table")));
}

struct Ending {
  const char* kernel;
  const char* reason;
};
void PrintTo(const Ending& e, std::ostream* out) { *out << e.kernel; }

class CliEnding : public ::testing::TestWithParam<Ending> {};

TEST_P(CliEnding, IsTheReasonOfItsCase) {
  const Scratch scratch;
  const Outcome o =
      run_faulty(scratch, {"run", "--case", "{batch: q5, heads: 2, head_dim: 24}", "--device", "cpu",
                           "--no-time", "--kernel", GetParam().kernel, "--kernel", "slow", "--out", "out"});
  EXPECT_EQ(o.exit_code, 5) << o.err;
  const json r = record_of(scratch, GetParam().kernel);
  EXPECT_EQ(r["status"], "error");
  EXPECT_THAT(r["reason"].get<std::string>(), ContainsRegex(GetParam().reason));
  EXPECT_THAT(r["repro"].get<std::string>(), HasSubstr(std::string("--kernel ") + GetParam().kernel));
  EXPECT_EQ(record_of(scratch, "slow")["status"], "pass");
}

INSTANTIATE_TEST_SUITE_P(, CliEnding,
                         ::testing::Values(Ending{"aborts", "(signal 6|exit code)"},
                                           Ending{"exits", "ended with exit code 3"},
                                           Ending{"is_killed", "killed by signal 9"},
                                           Ending{"throws_int", "threw something that is no std::exception"}),
                         [](const auto& p) { return std::string(p.param.kernel); });

/// The children of a process, from /proc.
std::vector<pid_t> children_of(pid_t pid) {
  const std::string id = std::to_string(pid);
  std::istringstream in(read_text("/proc/" + id + "/task/" + id + "/children"));
  std::vector<pid_t> out;
  for (pid_t child; in >> child;) out.push_back(child);
  return out;
}

/// Waits until the process has ended, or until only its parent's wait is missing.
bool ends_within(pid_t pid, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    const std::string stat = read_text("/proc/" + std::to_string(pid) + "/stat");
    if (stat.empty() || stat.find(") Z ") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

TEST(CliWorker, DiesWithItsSupervisor) {
  const Scratch scratch;
  Running run(scratch, ATTNBENCH_FAULTY,
              {"run", "--case", "{batch: q5, heads: 2, head_dim: 24}", "--device", "cpu", "--no-time",
               "--kernel", "hangs", "-v", "--out", "out"});
  ASSERT_TRUE(run.wait_for_stderr("[1/1]", 60));
  const auto children = children_of(run.pid());
  ASSERT_EQ(children.size(), 1u);
  run.signal(SIGKILL);
  run.wait();
  EXPECT_TRUE(ends_within(children[0], 20));
}

TEST(CliWorker, KilledByHandIsOneErrorAndTheRestPasses) {
  const Scratch scratch;
  const std::string file = scratch.write(
      "f.yaml", "name: f\nsweeps: [{batch: q5, heads: 2, head_dim: 8, gap_tokens: [0, 1, 2, 3]}]\n");
  Running run(scratch, ATTNBENCH_FAULTY,
              {"run", file, "--device", "cpu", "--no-time", "--kernel", "slow", "-v", "--out", "out"});
  ASSERT_TRUE(run.wait_for_stderr("[2/4] attnbench", 60));
  const auto children = children_of(run.pid());
  ASSERT_EQ(children.size(), 1u);
  kill(children[0], SIGKILL);
  EXPECT_EQ(run.wait().exit_code, 5);
  const auto records = read_records(scratch.dir() / "out");
  ASSERT_EQ(records.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(records[i]["status"], i == 1 ? "error" : "pass") << i;
}

TEST(CliWorker, FindsWhatOneProcessFinds) {
  const Scratch scratch;
  const std::string file = scratch.write(
      "f.yaml",
      "name: f\nsweeps: [{batch: [q5, q7s9_2q3], heads: 4/2, head_dim: [8, 16], kv: [packed, paged]}]\n");
  const auto run = [&](std::vector<std::string> more, const char* out) {
    std::vector<std::string> args = {"run", file,       "--device",      "cpu",   "--no-time", "--kernel",
                                     "cpu", "--kernel", "drop_last_key", "--out", out};
    args.insert(args.end(), more.begin(), more.end());
    EXPECT_EQ(run_faulty(scratch, args).exit_code, 1);
    auto records = read_records(scratch.dir() / out);
    // The last bits of sums over rows depend on the number of threads.
    for (json& r : records) {
      r.erase("stages");
      const json check = r["check"];
      r["check"] = {check["pass"], check["reason"], check["rows"], check["failed_by"], check["max_z"]};
    }
    return records;
  };
  const auto alone = run({"--in-process"}, "alone");
  EXPECT_EQ(alone.size(), 16u);
  EXPECT_TRUE(alone == run({}, "worker"));
  EXPECT_TRUE(alone == run({"--workers", "3"}, "workers"));
}

TEST(CliWorker, OptionsThatContradictEachOtherAreRefused) {
  const Scratch scratch;
  const auto says = [&](std::vector<std::string> more, const char* text) {
    std::vector<std::string> args = {"run", "--case", "{batch: q5}", "--device", "cpu"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome o = run_attnbench(scratch, args);
    EXPECT_EQ(o.exit_code, 2) << o.out;
    EXPECT_THAT(o.err, HasSubstr(text));
  };
  says({"--workers", "2"}, "add --no-time");
  says({"--in-process", "--workers", "2", "--no-time"}, "in this process");
  says({"--in-process", "--timeout", "3"}, "--timeout needs worker processes");
  says({"--timeout", "0"}, "--timeout");
}

TEST(CliCrash, ALaunchThatLooksForACauseCostsNoVerdict) {
  const Scratch scratch;
  const Outcome o =
      run_faulty(scratch, {"run", "--case", "{batch: q5s20, heads: 2, head_dim: 8}", "--device", "cpu",
                           "--no-time", "--kernel", "wrong_and_segfaults", "--out", "out"});
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  const json r = record_of(scratch, "wrong_and_segfaults");
  EXPECT_EQ(r["status"], "fail");
  EXPECT_THAT(r["reason"].get<std::string>(), HasSubstr("O of seq 0"));
  EXPECT_THAT(r["check"]["clues"].dump(), AllOf(HasSubstr("the last key of each sequence is left out"),
                                                HasSubstr("did not end: the worker process")));
}

}  // namespace
}  // namespace attnbench::testing
