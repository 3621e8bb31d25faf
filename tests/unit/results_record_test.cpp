#include "harness/results/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

/// Only has a DeviceInfo.
class NamedDevice : public Device {
 public:
  NamedDevice() { info_.model = "a model"; }
  const DeviceInfo& info() const override { return info_; }
  LaunchContext launch_context() const override { return {}; }
  int64_t free_memory() const override { return 0; }
  void* allocate(int64_t) override { return nullptr; }
  void release(void*) noexcept override {}
  void upload(void*, const void*, int64_t) override {}
  void download(void*, const void*, int64_t) override {}
  void set_bytes(void*, unsigned char, int64_t) override {}
  void fill(const FillJob&) override {}
  uint64_t digest(const void*, int64_t) override { return 0; }
  void change_signs(const SignedTensor&) override {}
  void poison(const WatchedOutput&) override {}
  void take_returned(const ReturnedTensor&) override {}
  void synchronize() override {}
  Sample time_launch(const std::function<void()>&, CacheMode, const LaunchWatch*) override { return {}; }
  std::function<void()> capture_graph(const std::function<void()>& launch) override { return launch; }
  const Ceilings& ceilings(const std::vector<DType>&) override { return ceilings_; }
  void profiler_start() override {}
  void profiler_stop() override {}
  void range_push(const char*) override {}
  void range_pop() override {}

 private:
  DeviceInfo info_;
  Ceilings ceilings_;
};

TEST(Record, Name) {
  EXPECT_EQ(record_name(test::passing("id", "cpu")), "id/cpu");
  EXPECT_EQ(record_name(test::passing("id", "")), "id") << "no kernel could be chosen";
}

TEST(Record, DescribeRun) {
  const NamedDevice device;
  const RunContext c = describe_run(device.info(), "sweep", {"attnbench", "run"});
  EXPECT_EQ(c.name, "sweep");
  EXPECT_EQ(c.command_line.size(), 2u);
  EXPECT_EQ(c.device.model, "a model");
  EXPECT_THAT(c.date, testing::MatchesRegex("....-..-..T..:..:..[+-]..:.."));
  EXPECT_FALSE(c.host.empty());
  EXPECT_FALSE(c.cpu_model.empty());
  EXPECT_GE(c.cpu_threads, 1);
  EXPECT_FALSE(c.version.empty());
  EXPECT_FALSE(c.revision.empty());
  EXPECT_TRUE(c.complete);
}

}  // namespace
}  // namespace attnbench
