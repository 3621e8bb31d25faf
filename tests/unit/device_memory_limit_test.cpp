// Limits of memory, read from made-up trees of /proc and /sys.
#include "harness/device/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "harness/device/cpu_ceilings.h"
#include "harness/device/device.h"
#include "harness/device/sanitized.h"

namespace attnbench {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

/// A folder with these files, and /proc of a machine of 1,000 MiB, 900 of them free.
class Tree {
 public:
  explicit Tree(std::map<std::string, std::string> files) {
    std::string name = testing::TempDir() + "memory_limit_XXXXXX";
    root_ = mkdtemp(name.data());
    files.insert({"proc/meminfo", "MemTotal:       1024000 kB\nMemFree: 1 kB\nMemAvailable:    921600 kB\n"});
    files.insert({"proc/self/statm", "2560 1 1 1 0 1280 0\n"});
    for (const auto& [path, text] : files) {
      std::filesystem::create_directories((root_ / path).parent_path());
      std::ofstream(root_ / path) << text;
    }
  }
  ~Tree() { std::filesystem::remove_all(root_); }

  /// "300 of 400 MiB free, cgroup /sys/fs/cgroup/job"
  std::string says() const {
    const MemoryLimit l = memory_limit(root_);
    return std::to_string(l.free / kMiB) + " of " + std::to_string(l.bytes / kMiB) + " MiB free, " + l.binds;
  }

 private:
  std::filesystem::path root_;
};

std::string mib(int64_t n) { return std::to_string(n * kMiB) + "\n"; }

const std::string kNone = "9223372036854771712\n";  // version 1 without a limit
const std::string kMount2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string kMount1 =
    "22 27 0:21 / /proc rw - proc proc rw\n31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "33 31 0:30 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
    "34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

TEST(MemoryLimit, WithoutCgroupsIsTheMachines) {
  EXPECT_EQ(Tree({}).says(), "900 of 1000 MiB free, the machine");
  EXPECT_EQ(Tree({{"proc/self/cgroup", "0::/job\n"}, {"proc/self/mountinfo", kMount2}}).says(),
            "900 of 1000 MiB free, the machine")
      << "no file of the group can be read";
  EXPECT_EQ(Tree({{"proc/self/cgroup", "x\n\n7:\n"}, {"proc/self/mountinfo", "1 2\n - cgroup2\n"}}).says(),
            "900 of 1000 MiB free, the machine");
}

TEST(MemoryLimit, OfANestedGroupOrOneAboveIt) {
  std::map<std::string, std::string> files{
      {"proc/self/cgroup", "0::/slurm/job 7/step\n"},
      {"proc/self/mountinfo", kMount2},
      {"sys/fs/cgroup/slurm/job 7/step/memory.max", "max\n"},
      {"sys/fs/cgroup/slurm/job 7/step/memory.current", mib(50)},
      {"sys/fs/cgroup/slurm/job 7/memory.max", mib(300)},
      {"sys/fs/cgroup/slurm/job 7/memory.current", mib(80)},
      {"sys/fs/cgroup/slurm/job 7/memory.stat", "anon 1\ninactive_file " + mib(30) + "active_file 9\n"},
      {"sys/fs/cgroup/other/memory.max", mib(1)}};
  EXPECT_EQ(Tree(files).says(), "250 of 300 MiB free, cgroup /sys/fs/cgroup/slurm/job 7");
  // Another step of the job above has used most of what all jobs together may have.
  files["sys/fs/cgroup/slurm/memory.max"] = mib(400);
  files["sys/fs/cgroup/slurm/memory.current"] = mib(390);
  EXPECT_EQ(Tree(files).says(), "10 of 300 MiB free, cgroup /sys/fs/cgroup/slurm");
  files["sys/fs/cgroup/slurm/job 7/step/memory.high"] = mib(40);
  EXPECT_EQ(Tree(files).says(), "0 of 40 MiB free, cgroup /sys/fs/cgroup/slurm/job 7/step");
}

TEST(MemoryLimit, OfVersionOneBesideVersionTwo) {
  EXPECT_EQ(Tree({{"proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/hb\n0::/elsewhere\n"},
                  {"proc/self/mountinfo", kMount1},
                  {"sys/fs/cgroup/memory/memory.limit_in_bytes", kNone},
                  {"sys/fs/cgroup/memory/memory.usage_in_bytes", mib(700)},
                  {"sys/fs/cgroup/memory/hb/memory.limit_in_bytes", mib(300)},
                  {"sys/fs/cgroup/memory/hb/memory.usage_in_bytes", mib(100)},
                  {"sys/fs/cgroup/memory/hb/memory.stat",
                   "inactive_file " + mib(5) + "total_inactive_file " + mib(20)}})
                .says(),
            "220 of 300 MiB free, cgroup /sys/fs/cgroup/memory/hb");
}

TEST(MemoryLimit, OfAContainer) {
  // It sees its own part of the tree, under the name that the host gives it; the mount says which part.
  const std::string mount =
      R"(31 23 0:28 /a\134x2d.slice/c /sys/fs/cgroup ro - cgroup cgroup ro,cpu,memory)" + std::string("\n");
  std::map<std::string, std::string> files{
      {"proc/self/cgroup", "3:cpu,memory:/a\\x2d.slice/c/inner\n"},
      {"proc/self/mountinfo", mount},
      {"sys/fs/cgroup/memory.limit_in_bytes", mib(200)},
      {"sys/fs/cgroup/inner/memory.limit_in_bytes", mib(150)},
  };
  EXPECT_EQ(Tree(files).says(), "150 of 150 MiB free, cgroup /sys/fs/cgroup/inner");
  // A group outside of what is mounted: the limit at its root holds.
  for (const char* group : {"/b/c", "/../b", "/a\\x2d.slice/cd"}) {
    files["proc/self/cgroup"] = std::string("3:memory:") + group + "\n";
    EXPECT_EQ(Tree(files).says(), "200 of 200 MiB free, cgroup /sys/fs/cgroup") << group;
  }
}

TEST(MemoryLimit, OfUlimit) {
  const auto limits = [](const std::string& data, const std::string& space) {
    return Tree({{"proc/self/limits", "Limit        Soft Limit   Hard Limit   Units\nMax data size      " +
                                          data + "   unlimited  bytes\nMax address space  " + space +
                                          "  unlimited  bytes\n"}})
        .says();
  };
  const int64_t page = sysconf(_SC_PAGESIZE);
  EXPECT_EQ(limits("unlimited", "unlimited"), "900 of 1000 MiB free, the machine");
  EXPECT_EQ(limits("unlimited", std::to_string(100 * kMiB + 2560 * page)),
            "100 of " + std::to_string(100 + 2560 * page / kMiB) + " MiB free, ulimit -v");
  EXPECT_EQ(limits(std::to_string(100 * kMiB + 1280 * page), "unlimited"),
            "100 of " + std::to_string(100 + 1280 * page / kMiB) + " MiB free, ulimit -d");
}

TEST(MemoryLimit, OfThisProcess) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs more";
  rlimit given{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &given), 0);
  rlimit less = given;
  less.rlim_cur = std::min<rlim_t>(given.rlim_max, 1024 * kMiB);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &less), 0);
  const auto device = open_device("cpu", 1);
  EXPECT_LE(device->info().memory_bytes, 1024 * kMiB);
  EXPECT_LE(device->free_memory(), 1024 * kMiB);
  EXPECT_LE(device->info().flush_bytes, 128 * kMiB);
  EXPECT_EQ(setrlimit(RLIMIT_DATA, &given), 0);
}

// 260 MB of caches, 512 MB free.
TEST(CpuRates, TakeNoMoreThanIsFree) {
  constexpr int64_t kCache = 260'000'000, kFree = 512'000'000;
  EXPECT_EQ(cpu_flush_bytes(kCache, kFree), kFree / 8);
  EXPECT_EQ(cpu_flush_bytes(kCache), 256 * kMiB);
  EXPECT_EQ(cpu_flush_bytes(32 * kMiB), 64 * kMiB);
  EXPECT_EQ(cpu_rate_sizes(8, kCache, kFree).buffer_bytes, 0) << "the rate would be that of the caches";
  EXPECT_EQ(cpu_rate_sizes(8, kCache, 3 * kFree).buffer_bytes, 3 * kFree / 2);
  EXPECT_EQ(cpu_rate_sizes(8, kCache, 8 * kFree).buffer_bytes, 4 * kCache);
  EXPECT_EQ(cpu_rate_sizes(8, 32 * kMiB, kFree).buffer_bytes, 128 * kMiB);
  EXPECT_EQ(cpu_rate_sizes(96, 1152 * kMiB, 16384 * kMiB).buffer_bytes, 2304 * kMiB)
      << "large caches and enough memory";
  EXPECT_EQ(cpu_rate_sizes(8, kCache, kFree).product, 512);
  EXPECT_EQ(cpu_rate_sizes(256, kCache, kFree).product, 128);
  EXPECT_EQ(cpu_rate_sizes(1, kCache, 0).product, 64);

  const CpuRates rates = measure_cpu_rates(1, cpu_rate_sizes(1, kCache, 0), TimeClock::kWall);
  EXPECT_FALSE(rates.read_gbs || rates.copy_gbs);
  EXPECT_GT(rates.fp32_tflops, 0);
}

}  // namespace
}  // namespace attnbench
