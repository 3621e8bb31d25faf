// Runs that are killed, interrupted or run out of disk, and continue with --resume. Nothing is lost and
// nothing is repeated.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

std::string sweep_of(int cases) {
  std::string text = "name: many\nsweeps: [{batch: q5, heads: 2, head_dim: 8, gap_tokens: [";
  for (int i = 0; i < cases; ++i) text += (i ? ", " : "") + std::to_string(i);
  return text + "]}]\n";
}

/// Ids of the whole lines of a journal, without a torn last line.
std::vector<std::string> journal_ids(const fs::path& dir) {
  std::vector<std::string> ids;
  std::istringstream in(read_text(dir / "journal.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const json j = json::parse(line, nullptr, false);
    if (j.is_discarded()) break;
    ids.push_back(j["attnbench"]["id"]);
  }
  return ids;
}

TEST(CliResume, AnotherRunInTheFolderKeepsWhatAnInterruptedOneLeft) {
  const Scratch scratch;
  const std::string file = scratch.write("few.yaml", sweep_of(3));
  const auto run = [&] {
    return run_attnbench(
        scratch, {"run", file, "--device", "cpu", "--kernel", "cpu", "--no-time", "-q", "--out", "out"});
  };
  const fs::path kept = scratch.dir() / "out" / "journal.interrupted.jsonl";
  ASSERT_EQ(run().exit_code, 0);
  ASSERT_EQ(run().exit_code, 0);
  EXPECT_FALSE(fs::exists(kept)) << "of a finished run the results are kept";
  json results = read_json(scratch.dir() / "out" / "results.json");
  results["context"]["attnbench"]["complete"] = false;
  scratch.write("out/results.json", results.dump());
  const std::string before = read_text(scratch.dir() / "out" / "journal.jsonl");
  const Outcome o = run();
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("out held an interrupted run"), HasSubstr("journal.interrupted.jsonl")));
  EXPECT_EQ(read_text(kept), before);
  EXPECT_EQ(journal_ids(scratch.dir() / "out").size(), 3u);
  results["context"]["attnbench"]["complete"] = false;
  scratch.write("out/results.json", results.dump());
  EXPECT_THAT(run().err, HasSubstr("journal.interrupted.2.jsonl"));
  EXPECT_EQ(read_text(kept), before) << "what was kept stays";
}

TEST(CliResume, AFinishedRunKeepsItsCeilings) {
  const Scratch scratch;
  const std::string file = scratch.write("few.yaml", sweep_of(2));
  const auto run = [&](const char* option) {
    return run_attnbench(
        scratch, {"run", file, "--device", "cpu", "--kernel", "cpu", "--no-time", "-q", option, "out"});
  };
  ASSERT_EQ(run("--out").exit_code, 0);
  json results = read_json(scratch.dir() / "out" / "results.json");
  results["context"]["attnbench"]["ceilings"]["read_gbs"] = 12.5;
  scratch.write("out/results.json", results.dump());
  ASSERT_EQ(run("--resume").exit_code, 0);
  results = read_json(scratch.dir() / "out" / "results.json");
  EXPECT_EQ(results["context"]["attnbench"]["ceilings"]["read_gbs"], 12.5);
  EXPECT_EQ(results["context"]["attnbench"]["complete"], true);
}

/// A timed run of two cases, of which the second is taken away again.
class CliResumeCeilings : public ::testing::Test {
 protected:
  Outcome run(const char* option) {
    return run_attnbench(
        scratch_, {"run", file_, "--device", "cpu", "--kernel", "cpu", "--max-samples", "10", option, "out"});
  }
  void half_a_run(const std::string& host = "") {
    ASSERT_EQ(run("--out").exit_code, 0);
    json results = read_json(results_);
    results["context"]["attnbench"]["ceilings"]["read_gbs"] = 987.5;
    results["context"]["attnbench"]["complete"] = false;
    if (!host.empty()) results["context"]["host_name"] = host;
    scratch_.write("out/results.json", results.dump());
    const std::string journal = read_text(scratch_.dir() / "out" / "journal.jsonl");
    scratch_.write("out/journal.jsonl", journal.substr(0, journal.find('\n') + 1));
  }
  json ceilings() { return read_json(results_)["context"]["attnbench"]["ceilings"]; }

  Scratch scratch_;
  std::string file_ = scratch_.write("few.yaml", sweep_of(2));
  fs::path results_ = scratch_.dir() / "out" / "results.json";
};

TEST_F(CliResumeCeilings, AreThoseOfTheFirstPartOnThisMachine) {
  half_a_run();
  const Outcome o = run("--resume");
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err,
              HasSubstr("\nthe ceilings (for %SOL and bound) are those that the first part measured\n"));
  EXPECT_EQ(ceilings()["read_gbs"], 987.5);
  EXPECT_EQ(read_records(scratch_.dir() / "out").size(), 2u);
}

TEST_F(CliResumeCeilings, AreMeasuredAnewOnAnother) {
  half_a_run("elsewhere");
  const Outcome o = run("--resume");
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("are measured anew: the first part ran on host 'elsewhere'"));
  EXPECT_NE(ceilings()["read_gbs"], 987.5);
}

TEST_F(CliResumeCeilings, AreOnDiskOnceACaseIsTimed) {
  const std::string file = scratch_.write("many.yaml", sweep_of(8));
  Running killed(scratch_, ATTNBENCH_FAULTY,
                 {"run", file, "--device", "cpu", "--kernel", "slow", "--check", "off", "--max-samples", "10",
                  "-v", "--out", "out"});
  ASSERT_TRUE(killed.wait_for_stderr("[2/8]", 120));
  killed.signal(SIGKILL);
  killed.wait();
  EXPECT_GT(ceilings()["read_gbs"].get<double>(), 0);
}

TEST(CliResume, KilledAtFiftyMomentsLosesAndRepeatsNothing) {
  constexpr int kCases = 300;
  const Scratch scratch;
  const std::string file = scratch.write("many.yaml", sweep_of(kCases));
  std::mt19937 random(20240229);
  std::uniform_int_distribution<int> delay_ms(0, 160);
  int kills = 0, folders = 0, stretch = 1;
  std::size_t most_before_a_kill = 0;
  for (bool finished = false; kills < 50 || !finished;) {
    const std::string name = "out" + std::to_string(folders);
    const fs::path dir = scratch.dir() / name;
    const auto before = journal_ids(dir);
    const bool fresh = !fs::exists(dir);
    Running run(scratch, ATTNBENCH_PROGRAM,
                {"run", file, "--device", "cpu", "--kernel", "cpu", "--no-time", "--quiet",
                 fresh ? "--out" : "--resume", name});
    if (kills < 50) {
      std::this_thread::sleep_for(std::chrono::milliseconds(stretch * delay_ms(random)));
      run.signal(SIGKILL);
    }
    const Outcome o = run.wait();
    const auto after = journal_ids(dir);
    ASSERT_GE(after.size(), before.size());
    ASSERT_TRUE(std::equal(before.begin(), before.end(), after.begin())) << "finished cases changed";
    ASSERT_EQ(std::set<std::string>(after.begin(), after.end()).size(), after.size())
        << "a case was repeated";
    if (fs::exists(dir / "results.json")) read_json(dir / "results.json");
    if (o.exit_code == 128 + SIGKILL) {
      ++kills;
      most_before_a_kill = std::max(most_before_a_kill, after.size());
      // On a machine so slow that no run reaches its first case, runs get more time.
      if (kills % 8 == 0 && most_before_a_kill == 0) stretch *= 2;
      continue;
    }
    ASSERT_EQ(o.exit_code, 0) << o.err;
    ASSERT_EQ(after.size(), static_cast<std::size_t>(kCases)) << "a case was lost";
    const auto records = read_records(dir);
    ASSERT_EQ(records.size(), static_cast<std::size_t>(kCases));
    for (std::size_t i = 0; i < records.size(); ++i) {
      ASSERT_EQ(records[i]["index"], i);
      ASSERT_EQ(records[i]["status"], "pass");
    }
    finished = true;
    ++folders;
  }
  EXPECT_GT(most_before_a_kill, 0u) << "no run lived long enough to say anything";
}

/// A run of four slow cases, interrupted in the third.
class CliInterrupted : public ::testing::Test {
 protected:
  void interrupt(int signal) {
    Running run(scratch_, ATTNBENCH_FAULTY, args({"-v", "--out", "out"}));
    ASSERT_TRUE(run.wait_for_stderr("[3/4] attnbench", 60));
    run.signal(signal);
    EXPECT_NE(run.wait().exit_code, 0);
    ASSERT_GE(journal_ids(dir_).size(), 2u);
    ASSERT_LT(journal_ids(dir_).size(), 4u);
  }
  std::vector<std::string> args(std::vector<std::string> more) const {
    std::vector<std::string> a = {"run", file_, "--device", "cpu", "--no-time", "--kernel", "slow"};
    a.insert(a.end(), more.begin(), more.end());
    return a;
  }
  Outcome resume(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--resume", "out"});
    return run_faulty(scratch_, args(more));
  }
  void expect_whole() {
    const auto ids = journal_ids(dir_);
    EXPECT_EQ(ids.size(), 4u);
    EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 4u);
    EXPECT_EQ(read_records(dir_).size(), 4u);
    EXPECT_EQ(read_json(dir_ / "results.json")["context"]["attnbench"]["complete"], true);
  }

  Scratch scratch_;
  std::string file_ = scratch_.write("many.yaml", sweep_of(4));
  fs::path dir_ = scratch_.dir() / "out";
};

TEST_F(CliInterrupted, CtrlC) {
  interrupt(SIGINT);
  const Outcome o = resume();
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("of 4 runs are finished"), Not(HasSubstr("gap0"))));
  expect_whole();
}

TEST_F(CliInterrupted, TerminateAndATornLine) {
  interrupt(SIGTERM);
  fs::resize_file(dir_ / "journal.jsonl", fs::file_size(dir_ / "journal.jsonl") - 100);
  EXPECT_EQ(resume().exit_code, 0);
  expect_whole();
}

TEST_F(CliInterrupted, OnlyTheNewlineIsMissing) {
  interrupt(SIGKILL);
  const auto before = journal_ids(dir_);
  std::string text = read_text(dir_ / "journal.jsonl");
  std::ofstream(dir_ / "journal.jsonl") << text.substr(0, text.find_last_of('\n'));
  EXPECT_EQ(resume().exit_code, 0);
  EXPECT_EQ(journal_ids(dir_)[before.size() - 1], before.back()) << "the finished case was not kept";
  expect_whole();
}

TEST_F(CliInterrupted, AnotherRunIsRefusedInWords) {
  interrupt(SIGINT);
  const std::string journal = read_text(dir_ / "journal.jsonl");
  const auto says = [&](std::vector<std::string> more, const std::string& text) {
    const Outcome o = resume(std::move(more));
    EXPECT_EQ(o.exit_code, 2) << o.out;
    EXPECT_THAT(o.err, HasSubstr(text));
    EXPECT_EQ(read_text(dir_ / "journal.jsonl"), journal) << "the journal was touched";
  };
  says({"--check", "full"}, "arguments: '--no-time' there, '--check full --no-time' here");
  says({"--seed", "7"}, "cases: 4 runs planned here as there, but others, seed 1 there and 7 here");
  says({"--filter", "gap3"}, "cases: 4 runs planned there, 1 here, and ");
  says({"--filter", "gap3"}, " finished runs not here, such as attention/packed/bf16/h2-2/d8/full/q5/slow)");
  says({"--filter", "gap3"},
       "It began as: " ATTNBENCH_FAULTY " run " + file_ + " --device cpu --no-time --kernel slow -v");
  says({"--shard", "1/2"}, "shards: 1 there, 2 here");
  says({"--out", "elsewhere"}, "drop --out");
  const Outcome o = run_faulty(scratch_, args({"--resume", "nowhere"}));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("nowhere: there is no such folder"));
}

TEST_F(CliInterrupted, AForeignJournalIsRefused) {
  interrupt(SIGINT);
  const std::string journal = read_text(dir_ / "journal.jsonl");
  std::ofstream(dir_ / "journal.jsonl") << "not JSON\n" << journal;
  EXPECT_THAT(resume().err, HasSubstr("journal.jsonl:1: error: not JSON, and not the last line either"));
  json entry = json::parse(journal.substr(0, journal.find('\n')));
  entry["attnbench"]["id"] = "attention/of\x1b[31m/another";
  std::ofstream(dir_ / "journal.jsonl") << entry.dump() << "\n";
  const Outcome o = resume();
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("which this run does not plan"), Not(HasSubstr("\x1b"))));
}

TEST_F(CliInterrupted, TwoRunsNeverShareAJournal) {
  interrupt(SIGINT);
  const int fd = open((dir_ / "journal.jsonl").c_str(), O_RDONLY);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  const Outcome o = resume();
  close(fd);
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("another attnbench is writing it"));
}

class CliDisk : public ::testing::Test {
 protected:
  Outcome run(const std::string& out) {
    return run_attnbench(scratch_,
                         {"run", file_, "--device", "cpu", "--kernel", "cpu", "--no-time", "--out", out});
  }
  Scratch scratch_;
  std::string file_ = scratch_.write("many.yaml", sweep_of(40));
};

TEST_F(CliDisk, FullWhileTheJournalGrows) {
  fs::create_directory(scratch_.path("out"));
  fs::create_symlink("/dev/full", scratch_.path("out/journal.jsonl"));
  const Outcome o = run("out");
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(o.err,
              AllOf(HasSubstr("journal.jsonl: error: cannot append to the journal: No space left on device"),
                    HasSubstr("--resume"), Not(HasSubstr("[2/40]"))));
}

TEST_F(CliDisk, FullBeforeAnyWork) {
  fs::create_directory(scratch_.path("out"));
  fs::create_symlink("/dev/full", scratch_.path("out/results.json"));
  const Outcome o = run("out");
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(o.err, AllOf(HasSubstr("results.json: error: cannot write: No space left on device"),
                           Not(HasSubstr("[1/40]"))));
}

TEST_F(CliDisk, TooSmallBeforeAnyWork) {
  const std::string dir = scratch_.path("small");
  fs::create_directory(dir);
  if (mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "no right to mount a tmpfs";
  const Outcome o = run("small");
  umount(dir.c_str());
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(
      o.err, AllOf(HasSubstr("KB are free, and 40 runs need 160 KB at the least"), Not(HasSubstr("[1/40]"))));
}

TEST_F(CliDisk, AFolderThatCannotBeMade) {
  const Outcome o = run("many.yaml/out");
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(o.err,
              AllOf(HasSubstr("many.yaml/out: error: cannot make the folder"), Not(HasSubstr("[1/40]"))));
}

TEST_F(CliDisk, AFolderThatCannotBeWritten) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  fs::create_directory(scratch_.path("shut"));
  fs::permissions(scratch_.path("shut"), fs::perms::owner_read | fs::perms::owner_exec);
  const Outcome o = run("shut");
  fs::permissions(scratch_.path("shut"), fs::perms::owner_all);
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(o.err,
              AllOf(HasSubstr("cannot create the journal: Permission denied"), Not(HasSubstr("[1/40]"))));
}

}  // namespace
}  // namespace attnbench::testing
