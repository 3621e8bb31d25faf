// The sweeps in configs/: all can be read, and the small ones are correct on this machine's CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "tests/cli/pins.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// Verifies the cases of a file on the cpu device, with `more` options, and returns the records of the kernel `cpu`, which
/// takes all of them. Other kernels may skip some.
std::vector<json> verify_on_cpu(const Scratch& scratch, const std::string& config,
                                const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {
      "run", source_path(config), "--device", "cpu", "--no-time", "--timeout", "1000", "--out", "out"};
  args.insert(args.end(), more.begin(), more.end());
  const Outcome o = run_attnbench(scratch, args);
  EXPECT_EQ(o.exit_code, 0) << o.out;
  std::vector<json> of_cpu;
  for (const json& r : read_records(scratch.dir() / "out")) {
    if (r["kernel"] == "cpu") of_cpu.push_back(r);
  }
  return of_cpu;
}

TEST(Configs, AllExpand) {
  const Scratch scratch;
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_path("configs"))) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    const Outcome o = run_attnbench(scratch, {"list", entry.path().string(), "--device", "cpu"});
    EXPECT_EQ(o.exit_code, 0) << entry.path() << o.err;
    EXPECT_THAT(o.out, HasSubstr(" 0 duplicates dropped")) << entry.path() << ": a case is written twice";
  }
  EXPECT_GE(files, 7);
}

/// A share of the cases of a file, on all kernels of the cpu device or on one.
struct Share {
  const char* file;
  const char* shard = "1/1";
  const char* kernel = nullptr;  ///< null: all
  std::size_t least = 0;         ///< cases of the file, in this share

  friend std::ostream& operator<<(std::ostream& out, const Share& s) {
    return out << s.file << " " << s.shard;
  }
};

/// In shares, because a test may take half a minute of processor time.
class ConfigIsCorrect : public ::testing::TestWithParam<Share> {};

TEST_P(ConfigIsCorrect, OnTheCpu) {
  // Many small launches run beside other tests, so waiting threads must not keep the cores busy.
  ASSERT_EQ(setenv("OMP_WAIT_POLICY", "passive", 1), 0);
  const Scratch scratch;
  std::vector<std::string> more = {"--shard", GetParam().shard};
  more.insert(more.end(), {"--seed-order", "1"});  // the same rows are compared each time
  if (GetParam().kernel != nullptr) more.insert(more.end(), {"--kernel", GetParam().kernel});
  const auto records = verify_on_cpu(scratch, std::string("configs/") + GetParam().file, more);
  EXPECT_GE(records.size(), GetParam().least);
  std::vector<std::string> lines;
  double sum = 0;
  for (const json& r : records) {
    EXPECT_EQ(r["status"], "pass") << r["id"] << r["reason"];
    lines.push_back(r["id"].get<std::string>() + " " + r["status"].get<std::string>());
    if (!r.contains("check")) continue;
    for (const char* key : {"max_z", "rms_z", "lse_max_z"})
      sum += r["check"][key].is_number() ? r["check"][key].get<double>() : 0;
  }
  expect_pinned(std::string(GetParam().file) + ":" + GetParam().shard, lines, sum);
}

INSTANTIATE_TEST_SUITE_P(
    Files, ConfigIsCorrect,
    ::testing::Values(Share{.file = "quickstart.yaml", .least = 15},
                      Share{.file = "golden.yaml", .least = 11},
                      // Its cases are long. A kernel that is written for reading would take half an hour.
                      Share{"ci.yaml", "1/2", "cpu", 2}, Share{"ci.yaml", "2/2", "cpu", 2},
                      Share{.file = "smoke.yaml", .shard = "1/2", .least = 50},
                      Share{.file = "smoke.yaml", .shard = "2/2", .least = 50},
                      Share{.file = "semantics.yaml", .shard = "1/3", .least = 400},
                      Share{.file = "semantics.yaml", .shard = "2/3", .least = 400},
                      Share{.file = "semantics.yaml", .shard = "3/3", .least = 400},
                      Share{.file = "semantics_ops.yaml", .least = 200},
                      Share{.file = "semantics_backward.yaml", .least = 100}));

TEST(Configs, QuickstartIsShort) {
  const Scratch scratch;
  EXPECT_THAT(run_attnbench(scratch, {"list", source_path("configs/quickstart.yaml")}).out,
              ContainsRegex("\n(1[5-9]|20) cases \\("));
}

TEST(Configs, SmokeIsBroad) {
  const Scratch scratch;
  const auto records = verify_on_cpu(scratch, "configs/smoke.yaml", {"--check", "sampled"});
  EXPECT_GE(records.size(), 100u);
  std::set<std::string> seen;
  for (const json& r : records) {
    const json& p = r["params"];
    seen.insert("block " + p["block_size"].dump());
    seen.insert("dim " + p["head_dim"].dump());
    seen.insert("ratio " + std::to_string(p["num_heads_q"].get<int>() / p["num_heads_kv"].get<int>()));
    if (p["num_seqs"] == 0) seen.insert("no sequence");
    if (p["total_q"] == 0) seen.insert("no query");
  }
  for (const char* wanted :
       {"block 1", "block 16", "block 64", "block 256", "dim 1", "dim 63", "dim 64", "dim 127", "dim 256",
        "ratio 1", "ratio 3", "ratio 7", "ratio 8", "no sequence", "no query"}) {
    EXPECT_TRUE(seen.count(wanted)) << "smoke.yaml has no case with " << wanted;
  }
}

}  // namespace
}  // namespace attnbench::testing
