// CUPTI's functions, found in a library that is opened at run time.
#pragma once

#include <string>
#include <vector>

#include "harness/device/cupti_abi.h"
#include "harness/error.h"

namespace attnbench::cupti {

/// CUPTI refused a call, or the library cannot be used. what() is one line for people and gives the remedy.
class Refusal : public Error {
 public:
  explicit Refusal(const std::string& what) : Error(what, kExitFailure) {}
};

struct Api {
  /// The first of `libraries` that has all functions. Throws Refusal.
  static Api load(const std::vector<std::string>& libraries);

  /// Throws Refusal if a call did not succeed.
  void check(Result result, const char* call) const;

  Result (*result_string)(Result, const char**);
  Result (*initialize)(Initialize*);
  Result (*chip_name)(ChipName*);
  Result (*host_initialize)(HostInitialize*);
  Result (*host_deinitialize)(HostDeinitialize*);
  Result (*base_metrics)(BaseMetrics*);
  Result (*add_metrics)(AddMetrics*);
  Result (*config_size)(ConfigSize*);
  Result (*config_image)(ConfigImage*);
  Result (*evaluate)(Evaluate*);
  Result (*enable)(Enable*);
  Result (*disable)(OfProfiler*);
  Result (*start)(OfProfiler*);
  Result (*stop)(Stop*);
  Result (*push_range)(PushRange*);
  Result (*pop_range)(OfProfiler*);
  Result (*decode)(Decode*);
  Result (*counters_size)(CountersSize*);
  Result (*counters_initialize)(CountersInitialize*);
  Result (*set_config)(SetConfig*);
  Result (*counters_info)(CountersInfo*);
};

/// A parameter struct with `size` set.
template <class Params>
Params params() {
  Params p{};
  p.size = kSize<Params>;
  return p;
}

}  // namespace attnbench::cupti
