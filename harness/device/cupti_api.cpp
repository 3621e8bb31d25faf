#include "harness/device/cupti_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <type_traits>

namespace attnbench::cupti {
namespace {

/// The remedy, as the end of a message; empty if there is none.
const char* mend_of(Result r) {
  switch (r) {
    case kInsufficientPrivileges:
      return "; the driver lets only root read counters: run as root, or load it with the module option "
             "NVreg_RestrictProfilingToAdminUsers=0";
    case kVirtualInsufficientPrivileges:
      return "; the host of this virtual GPU keeps its counters: profiling is enabled there";
    case kHardwareBusy:
    case kOldProfilerInitialized:
    case kMultipleSubscribers:
      return "; another profiler or sanitizer holds the counters: run without it, or without --counters";
    case kInvalidChipName:
      return "; this CUPTI does not know the chip: that of a newer CUDA Toolkit may";
    default:
      return "";
  }
}

/// Finds all functions. Returns the name of the first missing one, or nullptr.
const char* find_functions(void* library, Api& api) {
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  find("cuptiGetResultString", api.result_string);
  find("cuptiProfilerInitialize", api.initialize);
  find("cuptiDeviceGetChipName", api.chip_name);
  find("cuptiProfilerHostInitialize", api.host_initialize);
  find("cuptiProfilerHostDeinitialize", api.host_deinitialize);
  find("cuptiProfilerHostGetBaseMetrics", api.base_metrics);
  find("cuptiProfilerHostConfigAddMetrics", api.add_metrics);
  find("cuptiProfilerHostGetConfigImageSize", api.config_size);
  find("cuptiProfilerHostGetConfigImage", api.config_image);
  find("cuptiProfilerHostEvaluateToGpuValues", api.evaluate);
  find("cuptiRangeProfilerEnable", api.enable);
  find("cuptiRangeProfilerDisable", api.disable);
  find("cuptiRangeProfilerStart", api.start);
  find("cuptiRangeProfilerStop", api.stop);
  find("cuptiRangeProfilerPushRange", api.push_range);
  find("cuptiRangeProfilerPopRange", api.pop_range);
  find("cuptiRangeProfilerDecodeData", api.decode);
  find("cuptiRangeProfilerGetCounterDataSize", api.counters_size);
  find("cuptiRangeProfilerCounterDataImageInitialize", api.counters_initialize);
  find("cuptiRangeProfilerSetConfig", api.set_config);
  find("cuptiRangeProfilerGetCounterDataInfo", api.counters_info);
  return missing;
}

}  // namespace

Api Api::load(const std::vector<std::string>& libraries) {
  std::string too_old;
  for (const std::string& name : libraries) {
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    Api api{};
    const char* missing = find_functions(library, api);
    if (missing == nullptr) return api;  // the library stays loaded: the CUDA driver calls into it
    if (too_old.empty()) {
      too_old = fmt::format("{} lacks {}: that of CUDA 12.6 or later has it", name, missing);
    }
    dlclose(library);
  }
  throw Refusal(!too_old.empty() ? too_old
                                 : "CUPTI was not found (libcupti.so): install that of the CUDA Toolkit "
                                   "(cuda-cupti), or name the Toolkit's folder with CUDA_HOME");
}

void Api::check(Result result, const char* call) const {
  if (result == kSuccess) return;
  const char* name = nullptr;
  if (result_string(result, &name) != kSuccess || name == nullptr) name = "an unknown status";
  throw Refusal(fmt::format("{} failed with {} ({}){}", call, name, result, mend_of(result)));
}

}  // namespace attnbench::cupti
