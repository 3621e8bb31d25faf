// Shards of a sweep, run separately and merged, give the same results as the whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliShard : public ::testing::Test {
 protected:
  Outcome run(std::vector<std::string> more) {
    std::vector<std::string> a = {"run",      file_, "--device", "cpu",          "--no-time",
                                  "--kernel", "cpu", "--kernel", "drop_last_key"};
    a.insert(a.end(), more.begin(), more.end());
    return run_faulty(scratch_, a);
  }
  void run_shards(int n) {
    for (int i = 1; i <= n; ++i) {
      const std::string shard = std::to_string(i) + "/" + std::to_string(n);
      const Outcome o = run({"--shard", shard, "--out", "part" + std::to_string(i)});
      EXPECT_EQ(o.exit_code, 1) << o.err;
    }
  }
  Outcome merge(std::vector<std::string> args) {
    args.insert(args.begin(), "merge");
    return run_attnbench(scratch_, args);
  }

  Scratch scratch_;
  std::string file_ = scratch_.write(
      "s.yaml",
      "name: s\nsweeps: [{batch: [q5, 3q7s40, q64], heads: 4/2, head_dim: [8, 16], kv: [packed, paged]}]\n");
};

TEST_F(CliShard, MergeToTheWhole) {
  EXPECT_EQ(run({"--out", "whole"}).exit_code, 1);
  run_shards(3);
  const Outcome o = merge({"part3", "part1/results.json", "part2", "-o", "merged.json"});
  EXPECT_EQ(o.exit_code, 1) << o.err << "the verdicts are those of the shards";
  EXPECT_THAT(o.out, HasSubstr("24 runs of 3 files: 12 passed, 12 failed"));
  const json whole = read_json(scratch_.dir() / "whole" / "results.json");
  const json merged = read_json(scratch_.path("merged.json"));
  ASSERT_EQ(merged["benchmarks"].size(), 24u);
  for (std::size_t i = 0; i < 24; ++i) {
    const json &a = whole["benchmarks"][i], &b = merged["benchmarks"][i];
    for (const char* key : {"name", "family_index", "per_family_instance_index"})
      EXPECT_EQ(a[key], b[key]) << i;
    EXPECT_EQ(a["attnbench"]["status"], b["attnbench"]["status"]);
  }
  const json context = merged["context"]["attnbench"];
  EXPECT_EQ(context["complete"], true);
  EXPECT_EQ(context["planned"], 24);
  EXPECT_EQ(context["merged"].size(), 3u);
  // Each share has cases, and a case keeps all its kernels.
  for (const char* part : {"part1", "part2", "part3"}) {
    const auto records = read_records(scratch_.dir() / part);
    EXPECT_GE(records.size(), 2u);
    for (std::size_t i = 0; i + 1 < records.size(); i += 2) EXPECT_EQ(records[i]["id"], records[i + 1]["id"]);
  }
}

TEST_F(CliShard, OverlapsGapsAndMixturesAreRefusedByName) {
  run_shards(2);
  const auto says = [&](std::vector<std::string> args, const std::string& text) {
    args.insert(args.end(), {"-o", "merged.json"});
    const Outcome o = merge(args);
    EXPECT_EQ(o.exit_code, 2) << o.out;
    EXPECT_THAT(o.err, HasSubstr(text));
    EXPECT_FALSE(std::filesystem::exists(scratch_.path("merged.json")));
  };
  says({"part1"}, "no file is of shard 2/2; --allow-gaps merges what is there");
  says({"part1", "part2", "part1"}, "part1/results.json: error: holds attention/");
  says({"part1", "part2", "part1"}, "--allow-overlaps takes the later file's");
  EXPECT_EQ(run({"--shard", "2/2", "--out", "other", "--check", "full"}).exit_code, 1);
  says({"part1", "other"}, "other/results.json: error: its options is");
  EXPECT_EQ(run({"--shard", "2/2", "--out", "seed", "--seed", "5"}).exit_code, 1);
  says({"part1", "seed"}, "digest of cases, kernels and seeds");
  says({"part1", "nowhere"}, "nowhere: error: cannot be read");
  says({"part1", scratch_.write("plain.json", R"({"context": {}, "benchmarks": []})")},
       "'attnbench' is missing");
  says({"part1", scratch_.write("broken.json", "{")}, "broken.json: error: not JSON");
  json odd = read_json(scratch_.dir() / "part2" / "results.json");
  odd["benchmarks"][0]["attnbench"]["index"] = 1000000;
  says({"part1", scratch_.write("odd.json", odd.dump())}, "number 1000000 of a plan of 24 runs");
  odd["benchmarks"][0]["attnbench"]["index"] = "x";
  says({"part1", scratch_.write("odd.json", odd.dump())}, "'index' is of a wrong type");
  odd["context"]["attnbench"].erase("default_params");
  says({"part1", scratch_.write("odd.json", odd.dump())},
       "odd.json: error: context.attnbench: 'default_params'");

  const auto allowed = [&](std::vector<std::string> args) {
    args.insert(args.end(), {"-o", "merged.json"});
    const Outcome o = merge(args);
    EXPECT_EQ(o.exit_code, 1) << o.err;
    return read_json(scratch_.path("merged.json"));
  };
  const json gap = allowed({"part1", "--allow-gaps"});
  EXPECT_EQ(gap["context"]["attnbench"]["complete"], false);
  EXPECT_EQ(allowed({"part1", "part2", "part1", "--allow-overlaps"})["benchmarks"].size(), 24u);
  EXPECT_EQ(allowed({"part1", "other", "--allow-mixed"})["benchmarks"].size(), 24u);
}

TEST_F(CliShard, AKilledShardCountsWithWhatItFinished) {
  run_shards(2);
  // The state after a kill: results.json from the start of the run, finished records in the journal.
  json killed = read_json(scratch_.dir() / "part2" / "results.json");
  const std::size_t all = killed["benchmarks"].size();
  killed["benchmarks"] = json::array();
  killed["context"]["attnbench"]["complete"] = false;
  std::ofstream(scratch_.dir() / "part2" / "results.json") << killed.dump();
  std::string journal = read_text(scratch_.dir() / "part2" / "journal.jsonl");
  journal.resize(journal.size() - 50);
  std::ofstream(scratch_.dir() / "part2" / "journal.jsonl") << journal;
  const Outcome o = merge({"part1", "part2", "-o", "merged.json"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("1 of 24 planned runs"), HasSubstr("is of a run that did not finish")));
  EXPECT_EQ(merge({"part1", "part2", "-o", "merged.json", "--allow-gaps"}).exit_code, 1);
  EXPECT_EQ(read_json(scratch_.path("merged.json"))["benchmarks"].size(), 24u - all + (all - 1));
}

TEST_F(CliShard, OptionIsChecked) {
  for (const char* bad : {"0/2", "3/2", "1", "1/", "a/b", "1/2x", "-1/2", "1/0"}) {
    const Outcome o = run({"--shard", bad, "--out", "out"});
    EXPECT_EQ(o.exit_code, 2) << bad;
    EXPECT_THAT(o.err, HasSubstr("give I/N")) << bad;
  }
  const Outcome o = run({"--shard", "20/20", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << "an empty share is no failure";
  EXPECT_THAT(o.err, HasSubstr("shard 20/20 holds no case"));
}

}  // namespace
}  // namespace attnbench::testing
