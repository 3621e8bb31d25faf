// A stand-in for libcupti.so: one GPU, ordinal 3, whose counters take two passes. It refuses calls out of
// order and structs of another size. FAKE_CUPTI in the environment says what is wrong with it.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "harness/device/cupti_abi.h"

namespace {

using namespace attnbench::cupti;

constexpr Result kInvalidParameter = 1;
constexpr Result kInvalidOperation = 7;

enum class State { kDetached, kAttached, kSized, kConfigured, kStarted, kInRange, kPopped, kDecoded };
State g_state = State::kDetached;
int g_passes = 0;
int g_host = 0, g_profiler = 0;  ///< their addresses are the handles

bool wrong(const char* what) {
  const char* text = std::getenv("FAKE_CUPTI");
  return text != nullptr && std::strcmp(text, what) == 0;
}

/// Changes from one state to another; refuses in any other state.
Result step(State from, State to) {
  if (g_state != from) return kInvalidOperation;
  g_state = to;
  return kSuccess;
}

template <class Params>
bool sound(const Params* p) {
  return p->size == kSize<Params>;
}

const char* g_counters[] = {"dram__bytes_read", "dram__bytes_write", "sm__pipe_tensor_cycles_active",
                            "other"};
const char* g_counters_of_blackwell[] = {"dram__bytes_op_read", "dram__bytes_op_write"};
const char* g_ratios[] = {"lts__t_sector_hit_rate"};

}  // namespace

extern "C" {
/// For the tests: whether a profiler is attached.
int fake_cupti_attached() { return g_state != State::kDetached; }

Result cuptiGetResultString(Result r, const char** text) {
  *text = r == kInsufficientPrivileges ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_OF_THE_TEST";
  return kSuccess;
}
Result cuptiProfilerInitialize(Initialize* p) { return sound(p) ? kSuccess : kInvalidParameter; }
Result cuptiDeviceGetChipName(ChipName* p) {
  if (!sound(p) || p->device != 3) return kInvalidParameter;
  p->chip = "GX100";
  return kSuccess;
}
Result cuptiProfilerHostInitialize(HostInitialize* p) {
  if (!sound(p) || std::strcmp(p->chip, "GX100") != 0 || p->type != kRangeProfiler) return kInvalidParameter;
  if (wrong("unknown_chip")) return kInvalidChipName;
  p->host = &g_host;
  return kSuccess;
}
Result cuptiProfilerHostDeinitialize(HostDeinitialize* p) {
  return sound(p) && p->host == &g_host ? kSuccess : kInvalidParameter;
}
Result cuptiProfilerHostGetBaseMetrics(BaseMetrics* p) {
  if (!sound(p) || p->host != &g_host) return kInvalidParameter;
  const bool counters = p->type == kMetricCounter;
  const bool blackwell = wrong("blackwell");
  p->names = !counters ? g_ratios : blackwell ? g_counters_of_blackwell : g_counters;
  p->count = !counters ? 1 : blackwell ? 2 : 4;
  if (wrong("no_metrics")) p->count = 0;
  return kSuccess;
}
Result cuptiProfilerHostConfigAddMetrics(AddMetrics* p) {
  return sound(p) && p->host == &g_host && p->count > 0 ? kSuccess : kInvalidParameter;
}
Result cuptiProfilerHostGetConfigImageSize(ConfigSize* p) {
  if (!sound(p)) return kInvalidParameter;
  p->bytes = 8;
  return kSuccess;
}
Result cuptiProfilerHostGetConfigImage(ConfigImage* p) {
  if (!sound(p) || p->bytes != 8) return kInvalidParameter;
  std::memcpy(p->image, "config..", 8);
  return kSuccess;
}
Result cuptiRangeProfilerEnable(Enable* p) {
  if (!sound(p) || p->context == nullptr) return kInvalidParameter;
  if (wrong("no_permission")) return kInsufficientPrivileges;
  p->profiler = &g_profiler;
  g_passes = 0;
  return step(State::kDetached, State::kAttached);
}
Result cuptiRangeProfilerDisable(OfProfiler* p) {
  if (!sound(p) || g_state == State::kStarted || g_state == State::kInRange) return kInvalidOperation;
  g_state = State::kDetached;
  return kSuccess;
}
Result cuptiRangeProfilerGetCounterDataSize(CountersSize* p) {
  if (!sound(p) || p->max_ranges != 1 || p->max_nodes < 1 || p->count == 0) return kInvalidParameter;
  p->bytes = 16;
  return kSuccess;
}
Result cuptiRangeProfilerCounterDataImageInitialize(CountersInitialize* p) {
  if (!sound(p) || p->bytes != 16) return kInvalidParameter;
  std::memcpy(p->counters, "empty", 6);
  return step(State::kAttached, State::kSized);
}
Result cuptiRangeProfilerSetConfig(SetConfig* p) {
  if (!sound(p) || std::memcmp(p->config, "config..", 8) != 0 || p->range != kUserRange ||
      p->replay != kUserReplay) {
    return kInvalidParameter;
  }
  std::memcpy(p->counters, "filled", 7);
  return step(State::kSized, State::kConfigured);
}
Result cuptiRangeProfilerStart(OfProfiler*) { return step(State::kConfigured, State::kStarted); }
Result cuptiRangeProfilerPushRange(PushRange*) { return step(State::kStarted, State::kInRange); }
Result cuptiRangeProfilerPopRange(OfProfiler*) { return step(State::kInRange, State::kPopped); }
Result cuptiRangeProfilerStop(Stop* p) {
  if (!sound(p)) return kInvalidParameter;
  if (g_state == State::kStarted) g_state = State::kPopped;  // the pass was abandoned
  p->all_submitted = ++g_passes == 2 && !wrong("endless");
  return step(State::kPopped, State::kConfigured);
}
Result cuptiRangeProfilerDecodeData(Decode* p) {
  p->dropped = wrong("drops") ? 1 : 0;
  return step(State::kConfigured, State::kDecoded);
}
Result cuptiRangeProfilerGetCounterDataInfo(CountersInfo* p) {
  p->ranges = std::strcmp(reinterpret_cast<const char*>(p->counters), "filled") == 0 ? 1 : 0;
  return kSuccess;
}
Result cuptiProfilerHostEvaluateToGpuValues(Evaluate* p) {
  if (!sound(p) || g_state != State::kDecoded || p->range != 0) return kInvalidParameter;
  for (std::size_t i = 0; i < p->count; ++i) {
    const std::string name = p->names[i];
    p->values[i] = name == "dram__bytes_read.sum" || name == "dram__bytes_op_read.sum"        ? 4e6
                   : name == "dram__bytes_write.sum" || name == "dram__bytes_op_write.sum"    ? 1e6
                   : name == "lts__t_sector_hit_rate.pct"                                     ? 12.5
                   : wrong("no_value")                                                        ? std::nan("")
                   : name == "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active" ? 37.5
                                                                                              : -1;
  }
  return kSuccess;
}
}
