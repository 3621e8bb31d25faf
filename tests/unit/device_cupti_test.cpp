#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

#include "harness/device/cupti.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

/// Sets what is wrong with the fake library, for as long as this object lives (tests/unit/fake_cupti).
class Wrong {
 public:
  explicit Wrong(const char* what) { setenv("FAKE_CUPTI", what, 1); }
  ~Wrong() { unsetenv("FAKE_CUPTI"); }
};

constexpr int kOrdinal = 3;  // the only GPU of the library
const std::vector<std::string> kFake = {"libcupti-that-nobody-has.so", ATTNBENCH_FAKE_CUPTI};

std::string refusal(const std::vector<std::string>& libraries, int ordinal = kOrdinal) {
  std::string why;
  EXPECT_EQ(Cupti::open(ordinal, why, libraries), nullptr);
  return why;
}

bool attached() {
  void* library = dlopen(ATTNBENCH_FAKE_CUPTI, RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<int (*)()>(dlsym(library, "fake_cupti_attached"))() != 0;
}

struct Counted {
  CounterReading reading;
  std::string order;  ///< p for a preparation, l for a launch
};
Counted count(const std::vector<std::string>& libraries = kFake) {
  std::string why;
  const auto cupti = Cupti::open(kOrdinal, why, libraries);
  if (cupti == nullptr) throw std::runtime_error(why);
  Counted out;
  int context = 0;
  out.reading = cupti->count(
      &context, [&] { out.order += 'p'; }, [&] { out.order += 'l'; });
  return out;
}

TEST(Cupti, AbsentOrTooOldIsAReason) {
  EXPECT_THAT(refusal({"libcupti-that-nobody-has.so"}), HasSubstr("CUPTI was not found"));
  EXPECT_THAT(refusal({"libm.so.6"}), HasSubstr("libm.so.6 lacks cupti"));
  EXPECT_THAT(refusal({"libm.so.6"}), HasSubstr("CUDA 12.6 or later"));
}

TEST(Cupti, LooksBesideTheToolkitToo) {
  setenv("CUDA_HOME", "/some/cuda", 1);
  const std::vector<std::string> places = cupti_libraries();
  unsetenv("CUDA_HOME");
  EXPECT_EQ(places.front().find('/'), std::string::npos) << "the loader's path comes first";
  EXPECT_THAT(places, ::testing::Contains("/some/cuda/extras/CUPTI/lib64/libcupti.so.13"));
  EXPECT_THAT(places, ::testing::Contains("/usr/local/cuda/lib64/libcupti.so"));
}

TEST(Cupti, CountsInAsManyPassesAsItTakes) {
  const Counted c = count();
  EXPECT_EQ(c.reading.reason, "");
  EXPECT_EQ(c.reading.dram_read_bytes, 4e6);
  EXPECT_EQ(c.reading.dram_write_bytes, 1e6);
  EXPECT_EQ(c.reading.tensor_active_percent, 37.5);
  EXPECT_EQ(c.reading.l2_hit_percent, 12.5);
  EXPECT_EQ(c.reading.launches, 2);
  EXPECT_EQ(c.order, "plpl") << "prepared before each";
  EXPECT_FALSE(attached()) << "timed launches would be slower";
  EXPECT_EQ(count().reading.launches, 2) << "and once more";
}

TEST(Cupti, TakesTheNamesThatTheChipHas) {
  const Wrong other("blackwell");
  const Counted c = count();
  EXPECT_EQ(c.reading.dram_read_bytes, 4e6);
  EXPECT_EQ(c.reading.dram_write_bytes, 1e6);
  EXPECT_EQ(c.reading.tensor_active_percent, std::nullopt) << "a counter that the chip lacks";
  EXPECT_EQ(c.reading.l2_hit_percent, 12.5);
}

TEST(Cupti, WhatIsNoNumberIsUnknown) {
  const Wrong none("no_value");
  const Counted c = count();
  EXPECT_EQ(c.reading.tensor_active_percent, std::nullopt);
  EXPECT_EQ(c.reading.dram_read_bytes, 4e6);
}

TEST(Cupti, WithoutPermissionItNamesTheMend) {
  const Wrong permission("no_permission");
  const Counted c = count();
  EXPECT_THAT(c.reading.reason, HasSubstr("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"));
  EXPECT_THAT(c.reading.reason, HasSubstr("NVreg_RestrictProfilingToAdminUsers=0"));
  EXPECT_EQ(c.reading.launches, 0);
  EXPECT_EQ(c.reading.dram_read_bytes, std::nullopt);
  EXPECT_EQ(c.order, "");
}

TEST(Cupti, ChipsThatItDoesNotKnow) {
  EXPECT_THAT(refusal(kFake, 0), HasSubstr("cuptiDeviceGetChipName failed"));
  {
    const Wrong chip("unknown_chip");
    EXPECT_THAT(refusal(kFake), HasSubstr("cuptiProfilerHostInitialize for GX100 failed"));
    EXPECT_THAT(refusal(kFake), HasSubstr("a newer CUDA Toolkit"));
  }
  const Wrong metrics("no_metrics");
  EXPECT_THAT(refusal(kFake), HasSubstr("none of the counters for GX100"));
}

TEST(Cupti, IncompleteCountsAreNone) {
  {
    const Wrong endless("endless");
    const Counted c = count();
    EXPECT_THAT(c.reading.reason, HasSubstr("not complete after 16 launches"));
    EXPECT_EQ(c.reading.launches, 0);
    EXPECT_FALSE(attached());
  }
  const Wrong drops("drops");
  EXPECT_THAT(count().reading.reason, HasSubstr("dropped"));
  EXPECT_FALSE(attached());
}

TEST(Cupti, AFailedLaunchPassesThroughAndDetaches) {
  std::string why;
  const auto cupti = Cupti::open(kOrdinal, why, kFake);
  ASSERT_NE(cupti, nullptr) << why;
  int context = 0;
  const auto fails = [] { throw std::runtime_error("the launch"); };
  EXPECT_THROW(cupti->count(
                   &context, [] {}, fails),
               std::runtime_error);
  EXPECT_FALSE(attached());
  EXPECT_THROW(cupti->count(&context, fails, [] {}), std::runtime_error);
  EXPECT_FALSE(attached());
  EXPECT_EQ(cupti
                ->count(
                    &context, [] {}, [] {})
                .launches,
            2);
}

TEST(Cupti, ADeviceWithoutCountersSaysSo) {
  const auto cpu = open_device("cpu", 1);
  const CounterReading r = cpu->count_launch([] { FAIL(); }, [] { FAIL(); }, CacheMode::kCold);
  EXPECT_THAT(r.reason, HasSubstr("not of cpu"));
  EXPECT_EQ(r.launches, 0);
}

}  // namespace
}  // namespace attnbench
