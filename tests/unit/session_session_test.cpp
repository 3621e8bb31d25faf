#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "harness/results/exit_code.h"
#include "harness/session/invariants.h"
#include "harness/session/journal.h"
#include "harness/session/session.h"
#include "harness/session/supervisor.h"
#include "harness/session/time_stage.h"
#include "tests/unit/tree_files.h"

namespace attnbench {
namespace {

Record with(Status s) {
  Record r;
  r.status = s;
  return r;
}

TEST(ExitCode, WorstWinsInItsOrder) {
  EXPECT_EQ(exit_code_of({with(Status::kPass), with(Status::kSkip)}), 0);
  EXPECT_EQ(exit_code_of({with(Status::kPass), with(Status::kFail)}), 1);
  EXPECT_EQ(exit_code_of({with(Status::kPass), with(Status::kUndecided)}), 1);
  EXPECT_EQ(exit_code_of({with(Status::kFail), with(Status::kError)}), 5);
  EXPECT_EQ(exit_code_of({with(Status::kInvalidTime), with(Status::kFail)}), 1);
  EXPECT_EQ(exit_code_of({with(Status::kInvalidTime)}), 4);
  EXPECT_EQ(exit_code_of({with(Status::kSkip)}), 6) << "nothing ran";
  EXPECT_EQ(exit_code_of({}), 6);
  EXPECT_EQ(worse_exit_code(3, 4), 3);
  EXPECT_EQ(worse_exit_code(2, 5), 2);
  EXPECT_EQ(worse_exit_code(0, 6), 6);
}

/// The page and the messages name the same invariants.
TEST(Invariants, EachHasWordsAndALineOnThePage) {
  const std::string page = tree::read(tree::root() / "harness/judge/README.md");
  const std::regex row("\n\\| `([a-z_]+)` \\|");
  const std::size_t begin = page.find("## Invariants"), end = page.find("\n## ", begin + 1);
  const std::string table = page.substr(begin, end - begin);
  std::vector<std::string> names;
  for (std::sregex_iterator i(table.begin(), table.end(), row), last; i != last; ++i) {
    names.push_back(i->str(1));
    EXPECT_NE(invariant_words(names.back()), names.back()) << "no words";
  }
  EXPECT_EQ(names, invariant_names());
}

TEST(NewWorker, AfterWhatMayLeaveTraces) {
  EXPECT_FALSE(needs_new_worker(with(Status::kPass), DeviceKind::kCuda));
  EXPECT_TRUE(needs_new_worker(with(Status::kError), DeviceKind::kCuda));
  EXPECT_TRUE(needs_new_worker(with(Status::kFail), DeviceKind::kCpu));
  EXPECT_FALSE(needs_new_worker(with(Status::kFail), DeviceKind::kCuda));
  Record counted = with(Status::kPass);
  counted.counters.emplace().launches = 2;
  EXPECT_TRUE(needs_new_worker(counted, DeviceKind::kCuda)) << "the profiler was attached";
  counted.counters->launches = 0;
  EXPECT_FALSE(needs_new_worker(counted, DeviceKind::kCuda)) << "it never was";
}

Case tiny_case() {
  Case c;
  c.params.num_heads_q = c.params.num_heads_kv = 1;
  c.params.head_dim = 4;
  c.params.seqs = {{2, 2}};
  c.id = case_id(c.params);
  return c;
}

Kernel kernel_that(KernelStatus (*launch)(const OpParams*, const LaunchContext*, KernelMessage*)) {
  Kernel k{};
  k.abi_version = kKernelAbiVersion;
  k.name = "test_kernel";
  k.summary = k.shapes = "";
  k.features = ~0ull;
  k.supports = [](const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kOk; };
  k.numerics = [](const OpParams*) { return Numerics{DType::kFp32, DType::kFp32, 0x1p-22}; };
  k.launch = launch;
  return k;
}

Record run_one(const Kernel& k, const Case& c, CheckMode check = CheckMode::kSampled) {
  const auto device = open_device("cpu", 1);
  SessionOptions options;
  options.check = check;
  options.time = false;
  bool lost = false;
  return run_item({&c, &k}, *device, options, lost);
}

Record run_with_invariants(const Kernel& k, const Case& c) {
  const auto device = open_device("cpu", 1);
  SessionOptions options;
  options.invariants = true;
  options.time = false;
  bool lost = false;
  return run_item({&c, &k}, *device, options, lost);
}

TEST(RunItem, AKernelThatWritesNothingFails) {
  const Case c = tiny_case();
  const Kernel k =
      kernel_that([](const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kOk; });
  const Record r = run_one(k, c);
  EXPECT_EQ(r.status, Status::kFail);
  EXPECT_THAT(r.reason, ::testing::HasSubstr("not written"));
  EXPECT_THAT(r.repro, ::testing::HasSubstr("attnbench run --case '{op: attention"));
}

TEST(RunItem, AFailedLaunchIsAnErrorWithItsMessage) {
  const Case c = tiny_case();
  const Kernel k = kernel_that([](const OpParams*, const LaunchContext*, KernelMessage* m) {
    return refuse(m, KernelStatus::kDeviceError, "out of registers");
  });
  const Record r = run_one(k, c);
  EXPECT_EQ(r.status, Status::kError);
  EXPECT_EQ(r.reason, "test_kernel: launch failed: out of registers");
  const Kernel follows_junk = kernel_that([](const OpParams*, const LaunchContext*, KernelMessage* m) {
    return refuse(m, KernelStatus::kDeviceError, "index 2147483632 is out of bounds");
  });
  EXPECT_THAT(
      run_one(follows_junk, c).reason,
      ::testing::HasSubstr("bounds; 2147483632 is junk that must not be read, as in entries of block_table"));
}

TEST(RunItem, AFailedLaunchOfAnInvariantNamesIt) {
  static const Kernel& right =
      *select_kernels(builtin_kernels(), Op::kAttention, DeviceKind::kCpu, {"cpu"}).front();
  static int launches;
  launches = 0;
  Kernel k = right;
  k.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    if (++launches > 1) return refuse(m, KernelStatus::kDeviceError, "out of registers");
    return right.launch(p, c, m);
  };
  const Record r = run_with_invariants(k, tiny_case());
  EXPECT_EQ(r.status, Status::kError);
  EXPECT_EQ(
      r.reason,
      "cpu: launch failed: out of registers, during invariant repeat (the same launch again), after a first "
      "launch that was right");
}

/// A race that the first two launches do not show breaks invariants about layouts.
TEST(RunItem, ARaceIsSaidBesideABrokenInvariant) {
  static const Kernel& right =
      *select_kernels(builtin_kernels(), Op::kAttention, DeviceKind::kCpu, {"cpu"}).front();
  static int launches;
  static bool racy;
  Kernel k = right;
  k.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    const KernelStatus status = right.launch(p, c, m);
    const bool of_case = (p->attention.features & kPagedKv) == 0;  // the other invariants stay right
    if (++launches > 2 && (racy || !of_case)) p->attention.lse[0] += 1.0f;
    return status;
  };
  const auto clues = [&](bool race) {
    launches = 0;
    racy = race;
    const Record r = run_with_invariants(k, tiny_case());
    EXPECT_EQ(r.status, Status::kFail);
    EXPECT_THAT(r.reason, ::testing::HasSubstr("invariant "));
    return r.check->clues;
  };
  EXPECT_THAT(clues(true),
              ::testing::Contains(::testing::HasSubstr("other numbers when it is repeated: a race")));
  EXPECT_THAT(clues(false), ::testing::Not(::testing::Contains(::testing::HasSubstr("a race"))));
}

/// A kernel that keeps something by address breaks whichever invariant gets an address again.
TEST(RunItem, WhatIsKeptByAddressIsNoFaultOfAnInvariant) {
  static const Kernel& right =
      *select_kernels(builtin_kernels(), Op::kAttention, DeviceKind::kCpu, {"cpu"}).front();
  static std::set<const void*> kept;
  static int launches;
  static bool keeps;
  const auto clues = [](bool by_address) {
    kept.clear();
    launches = 0;
    keeps = by_address;
    Kernel k = right;
    k.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
      OpParams changed = *p;
      if (p->attention.cu_seqlens_q[0] != 0) {  // lead_rows
        if (++launches <= 3) kept.insert(p->attention.k);
        if (!keeps || kept.contains(p->attention.k)) changed.attention.softmax_scale *= 2;
      }
      return right.launch(&changed, c, m);
    };
    const Record r = run_with_invariants(k, tiny_case());
    EXPECT_EQ(r.status, Status::kFail);
    EXPECT_THAT(r.reason, ::testing::HasSubstr("invariant lead_rows"));
    return r.check->clues;
  };
  const auto by_address = ::testing::Contains(::testing::HasSubstr("from launch to launch by address"));
  EXPECT_THAT(clues(true), by_address);
  EXPECT_THAT(clues(false), ::testing::Not(by_address));
}

TEST(RunItem, ARefusalIsASkipInTheKernelsWords) {
  Case c = tiny_case();
  c.params.causal = true;
  Kernel k = kernel_that(nullptr);
  k.features = ~uint64_t{kCausal};
  const Record r = run_one(k, c);
  EXPECT_EQ(r.status, Status::kSkip);
  EXPECT_EQ(r.reason, "test_kernel: causal is not supported");
}

TEST(RunItem, ACaseThatCannotFitIsASkipThatSaysNeededAndFree) {
  Case c = tiny_case();
  c.params.head_dim = 256;
  c.params.num_heads_q = c.params.num_heads_kv = 1024;
  c.params.seqs.assign(100, {1, 1 << 20});
  const Kernel k = kernel_that(nullptr);
  const Record r = run_one(k, c);
  EXPECT_EQ(r.status, Status::kSkip);
  EXPECT_THAT(r.reason, ::testing::ContainsRegex("^needs [0-9.]+ GB of cpu memory, [0-9.]+ GB are free$"));
  const auto needed = [](const Record& record) { return std::stod(record.reason.substr(6)); };
  EXPECT_GT(needed(r), needed(run_one(k, c, CheckMode::kOff))) << "a check needs copies on the host";
}

TEST(RenewRooflines, AllSharesAreOfTheLastCeilings) {
  std::vector<Record> records(2);
  for (Record& r : records) {
    r.item.params.seqs = {{1, 4096}};
    r.device = "cpu";
    r.time.emplace().median_us = 100;
    r.roofline.emplace().sol = 3;
    r.roofline->executed_flop = 7;
  }
  records[1].device = "cuda:0";
  DeviceInfo cpu;
  cpu.name = "cpu";
  Ceilings now;
  now.read_gbs = 50;
  renew_rooflines(now, CacheMode::kCold, cpu, records);
  const Roofline& renewed = *records[0].roofline;
  EXPECT_DOUBLE_EQ(*renewed.sol, renewed.floor_us / 100);
  EXPECT_NE(*renewed.sol, 3);
  EXPECT_EQ(renewed.executed_flop, 7) << "it depends on the kernel, not on the ceilings";
  EXPECT_EQ(records[1].roofline->sol, 3) << "another device";
  const double share = *renewed.sol;
  now.read_gbs = 100;
  renew_rooflines(now, CacheMode::kCold, cpu, records);
  EXPECT_LT(*records[0].roofline->sol, share);
}

TEST(Journal, AppendsLinesAndSaysWhyItCannot) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("attnbench_journal_test." + std::to_string(getpid()) + ".jsonl");
  {
    Journal j(path);
    j.cut(0);
    j.append("{\"a\":1}\n");
    j.append("{\"b\":2}\n");
  }
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(text, "{\"a\":1}\n{\"b\":2}\n");
  std::filesystem::remove(path);
  EXPECT_THROW(Journal("/nonexistent/folder/journal.jsonl"), std::runtime_error);
}

}  // namespace
}  // namespace attnbench
