// The smallest faults that are caught, by length of the context.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/device/device.h"
#include "harness/launch/launcher.h"

namespace attnbench {

/// The smallest size of a fault that is caught. It is found by bisection, because larger faults are easier to
/// see.
struct Threshold {
  std::string fault;      ///< its key in sensitivity.json
  double smallest = 0;    ///< the smallest size tried that was caught; 0: none was
  double missed = 0;      ///< the largest size tried that was not caught
  std::string caught_by;  ///< the first detector at the smallest size
};

struct SensitivityRow {
  std::string dtype;   ///< "bf16", "fp16", "fp32", "e4m3 KV" (with queries and O in bf16)
  std::string p_type;  ///< type of P in the tolerance: the kernel's own, or the type of q
  std::string item;    ///< the case's id
  int64_t context = 0;
  int64_t rows = 0;  ///< rows that were compared
  double max_z = 0;  ///< largest |z| without a fault
  /// Op attention:
  ///   scale, scale_o                relative error of softmax_scale; the same, by detectors that look at O only
  ///   dropped_keys, dropped_keys_o  number of last keys of every sequence that are left out; the same of O only
  ///   lse                           number added to every LSE
  /// Op attention_backward:
  ///   scale            relative error of softmax_scale
  ///   dq, dk, dv       relative error of one gradient, before it is rounded
  ///   dropped_keys     number of last keys that are left out of dq
  ///   dropped_queries  number of last queries that are left out of dk and dv
  std::vector<Threshold> faults;
};

struct Sensitivity {
  std::vector<SensitivityRow> rows;
  std::string wrong;       ///< what the kernel itself gets wrong: nothing further is measured then
  std::string unfinished;  ///< why the device or the kernel could not go on; empty if all was measured
  bool stopped = false;

  /// Whether each fault was caught at some size. Faults that detectors of O alone miss do not count.
  bool all_caught() const;
};

/// Measures, for each context length and type: attention, four sequences of one query each; attention_backward,
/// one sequence with as many queries as keys. Types that the kernel refuses are left out. Each case is judged
/// with the arithmetic that the kernel declares, and again as if P were rounded to the type of q, as on matrix
/// units: their larger tolerance hides larger faults. `stop` is called before each context. `row_found` gets all
/// rows so far whenever there is a new one.
Sensitivity measure_sensitivity(const Kernel& kernel, Device& device, const std::vector<int64_t>& contexts,
                                const std::function<void(const std::string&)>& progress,
                                const std::function<void(const std::vector<SensitivityRow>&)>& row_found,
                                const std::function<bool()>& stop);

}  // namespace attnbench
