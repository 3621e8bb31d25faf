// attnbench run --watch: what it prints after a change of its files, and how it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <thread>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTwo = "name: two\ndefaults: {heads: 2, head_dim: 8}\nsweeps: [{batch: [q5, q9]}]\n";

fs::path plugin(const std::string& name) { return fs::path(ATTNBENCH_PLUGIN_DIR) / (name + ".so"); }

/// A watch of mine.so and two.yaml in a scratch folder.
class CliWatch : public ::testing::Test {
 protected:
  void start(const std::string& first) {
    scratch_.write("two.yaml", kTwo);
    replace(first);
    watch_.emplace(scratch_, ATTNBENCH_PROGRAM,
                   std::vector<std::string>{"run", "two.yaml", "--device", "cpu", "--plugin", "./mine.so",
                                            "--kernel", "example", "--no-time", "-q", "--watch"});
  }
  /// As compilers and `mv` do it: another file takes the name.
  void replace(const std::string& name) const {
    fs::copy_file(plugin(name), scratch_.path("new.so"), fs::copy_options::overwrite_existing);
    fs::rename(scratch_.path("new.so"), scratch_.path("mine.so"));
  }
  bool ended(int run, int code, double seconds = 120) const {
    return watch_->wait_for_stderr("run " + std::to_string(run) + " ended with exit code " +
                                       std::to_string(code) + "; watching ./mine.so, two.yaml",
                                   seconds);
  }
  Outcome stop() {
    watch_->signal(SIGINT);
    return watch_->wait();
  }

  Scratch scratch_;
  std::optional<Running> watch_;
};

TEST_F(CliWatch, PrintsWhatDiffersFromTheLastRun) {
  start("example");
  ASSERT_TRUE(ended(1, 0));
  replace("wrong");
  ASSERT_TRUE(ended(2, 1));
  fs::last_write_time(scratch_.path("mine.so"), fs::file_time_type::clock::now());
  ASSERT_TRUE(ended(3, 1));
  replace("example");
  ASSERT_TRUE(ended(4, 0));
  scratch_.write("two.yaml", std::string(kTwo).replace(std::string(kTwo).find("q9"), 2, "q7"));
  ASSERT_TRUE(ended(5, 0));
  const Outcome o = stop();
  EXPECT_EQ(o.exit_code, 0) << "that of the last run";
  const std::string q5 = "attention/packed/bf16/h2-2/d8/full/q5 on example";
  EXPECT_THAT(
      o.out, HasSubstr("since the last run:\nright -> wrong  " + q5 + ": O of seq 0 pos 0 head 0 channel 0"));
  EXPECT_THAT(o.out, HasSubstr("wrong -> right  " + q5 + "\n"));
  EXPECT_THAT(o.out, HasSubstr("nothing differs from the last run"));
  EXPECT_THAT(o.out, HasSubstr("new -> right  attention/packed/bf16/h2-2/d8/full/q7 on example\n"));
  EXPECT_THAT(o.out, HasSubstr("right -> not run  attention/packed/bf16/h2-2/d8/full/q9 on example\n"));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch_.dir() / "results/runs"), fs::directory_iterator()),
            5)
      << "each run has a folder of its own";
}

TEST_F(CliWatch, WaitsForTheEndOfAFileThatIsWritten) {
  start("example");
  ASSERT_TRUE(ended(1, 0));
  const std::string whole = read_text(plugin("wrong"));
  {
    std::ofstream out(scratch_.path("mine.so"), std::ios::binary);
    for (std::size_t part = 0; part < 8; ++part) {
      const std::size_t begin = whole.size() * part / 8;
      out << whole.substr(begin, whole.size() * (part + 1) / 8 - begin) << std::flush;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }
  ASSERT_TRUE(ended(2, 1)) << "with the whole file";
  fs::remove(scratch_.path("mine.so"));
  EXPECT_FALSE(watch_->wait_for_stderr("run 3", 1.5)) << "the file has vanished";
  replace("example");
  ASSERT_TRUE(ended(3, 0));
  EXPECT_THAT(stop().out, AllOf(HasSubstr("right -> wrong"), HasSubstr("wrong -> right")));
}

TEST_F(CliWatch, GoesOnAfterAPluginThatDoesNotLoad) {
  start("undefined_symbol");
  ASSERT_TRUE(ended(1, 2));
  replace("example");
  ASSERT_TRUE(ended(2, 0));
  replace("ends_at_load");
  ASSERT_TRUE(ended(3, 5));
  const Outcome o = stop();
  EXPECT_EQ(o.exit_code, 5);
  EXPECT_THAT(o.err, HasSubstr("a_function_of_nobody"));
  EXPECT_THAT(o.out, Not(HasSubstr("last run"))) << "no two runs have results";
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch_.dir() / "results/runs"), fs::directory_iterator()),
            1)
      << "only one began";
}

TEST(CliWatchStop, EndsTheRunInHand) {
  const Scratch scratch;
  scratch.write(
      "ten.yaml",
      "name: ten\nsweeps: [{batch: q5, heads: 2, head_dim: 8, gap_tokens: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}]\n");
  Running run(scratch, ATTNBENCH_FAULTY,
              {"run", "ten.yaml", "--device", "cpu", "--kernel", "slow", "--no-time", "-v", "--watch"});
  ASSERT_TRUE(run.wait_for_stderr("[3/10]", 60));
  run.signal(SIGINT);
  const Outcome o = run.wait();
  EXPECT_EQ(o.exit_code, 130);
  EXPECT_THAT(o.err, HasSubstr("to go on, repeat the command with --resume results/runs/"));
  EXPECT_THAT(o.err, Not(HasSubstr("watching")));
}

TEST(CliWatchUsage, RefusesWhatItCannotDo) {
  const Scratch scratch;
  const auto refusal = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", "--case", "{batch: q5}", "--watch"});
    const Outcome o = run_attnbench(scratch, more);
    EXPECT_EQ(o.exit_code, 2) << o.out;
    return o.err;
  };
  EXPECT_THAT(refusal({}), HasSubstr("--watch: no file can change: give --plugin FILE or a sweep file"));
  for (const char* option : {"--out=a", "--resume=a", "--shard=1/2", "--last-failed", "--dry-run"}) {
    const std::string given = option;
    EXPECT_THAT(refusal({option}), HasSubstr("--watch excludes " + given.substr(0, given.find('='))))
        << option;
  }
}

}  // namespace
}  // namespace attnbench::testing
