#include <gtest/gtest.h>

#include "harness/device/nvml.h"

namespace attnbench {
namespace {

TEST(Nvml, AbsentIsAReasonAndNoMore) {
  std::string why;
  EXPECT_EQ(Nvml::open("0000:00:00.0", why, "libnvidia-ml-that-nobody-has.so"), nullptr);
  EXPECT_NE(why.find("libnvidia-ml-that-nobody-has.so was not found"), std::string::npos) << why;
  why.clear();
  EXPECT_EQ(Nvml::open("0000:00:00.0", why, "libm.so.6"), nullptr) << "a library, but another";
  EXPECT_NE(why.find("lacks a function"), std::string::npos) << why;
}

// Uses a library with NVML's names (tests/unit/fake_nvml): one GPU, at 0000:18:00.0.
TEST(Nvml, ReadsWhatThereIs) {
  std::string why;
  EXPECT_EQ(Nvml::open("0000:99:00.0", why, ATTNBENCH_FAKE_NVML), nullptr);
  EXPECT_NE(why.find("0000:99:00.0"), std::string::npos) << why;
  const auto nvml = Nvml::open("0000:18:00.0", why, ATTNBENCH_FAKE_NVML);
  ASSERT_NE(nvml, nullptr) << why;
  EXPECT_EQ(nvml->driver_version(), "580.65.06");
  const ClockReading r = nvml->read();
  EXPECT_EQ(r.sm_mhz, 1755);
  EXPECT_EQ(r.mem_mhz, 2619);
  EXPECT_DOUBLE_EQ(*r.power_w, 699.5);
  EXPECT_FALSE(r.temperature_c) << "refused";
  EXPECT_EQ(r.throttle, (std::vector<std::string>{"sw_power_cap"}));
}

TEST(Nvml, SaysHowBusyTheGpuIsThatHasThisUuid) {
  std::string why;
  EXPECT_EQ(Nvml::open("GPU-99999999-1111-2222-3333-444444444444", why, ATTNBENCH_FAKE_NVML), nullptr);
  EXPECT_NE(why.find("GPU-99999999"), std::string::npos) << why;
  const auto nvml = Nvml::open("GPU-00000000-1111-2222-3333-444444444444", why, ATTNBENCH_FAKE_NVML);
  ASSERT_NE(nvml, nullptr) << why;
  EXPECT_EQ(nvml->busy_percent(), 87) << "of the GPU, not of its memory";
}

TEST(Nvml, ThrottleReasonsByName) {
  EXPECT_TRUE(throttle_names(0).empty());
  EXPECT_TRUE(throttle_names(0x1 | 0x2 | 0x100).empty()) << "idle, and clocks that someone set";
  EXPECT_EQ(throttle_names(0x4 | 0x40), (std::vector<std::string>{"sw_power_cap", "hw_thermal"}));
  EXPECT_EQ(throttle_names(0x8000), (std::vector<std::string>{"bit_15"})) << "a reason of a later driver";
}

}  // namespace
}  // namespace attnbench
