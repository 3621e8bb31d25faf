// The smallest faults that are caught, against the length of the context.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/device/device.h"
#include "harness/run/launcher.h"

namespace attnbench {

/// What is caught of one size of one fault: found by bisection, as larger ones are easier to see.
struct Threshold {
  double smallest = 0;    ///< the smallest size tried that was caught; 0: none was
  double missed = 0;      ///< the largest tried that was not
  std::string caught_by;  ///< the first detector at the smallest
};

struct SensitivityRow {
  std::string dtype;   ///< "bf16", "fp16", "e4m3 KV" (with queries and O in bf16)
  std::string p_type;  ///< of P in the tolerance: the kernel's own, or the type of q
  std::string item;    ///< the case's id
  int64_t context = 0;
  int64_t rows = 0;          ///< rows of O that were compared
  Threshold scale;           ///< relative error of softmax_scale
  Threshold scale_o;         ///< the same, of the detectors that look at O alone
  Threshold dropped_keys;    ///< last keys of every sequence that are left out
  Threshold dropped_keys_o;  ///< likewise
  Threshold lse;             ///< added to every LSE
};

struct Sensitivity {
  std::vector<SensitivityRow> rows;
  std::string wrong;       ///< what the kernel itself gets wrong, where nothing further is measured
  std::string unfinished;  ///< why the device or the kernel could not go on
  bool stopped = false;
};

/// Four sequences of one query each, at each of the contexts and types; types that the kernel refuses are
/// left out. Each is judged by the arithmetic that the kernel declares, and as if it rounded P to the type of
/// q, as kernels on matrix units do: what those are allowed hides larger faults. `stop`: asked before each
/// context. `row_found`: gets the rows so far, whenever there is one more.
Sensitivity measure_sensitivity(const Kernel& kernel, Device& device, const std::vector<int64_t>& contexts,
                                const std::function<void(const std::string&)>& progress,
                                const std::function<void(const std::vector<SensitivityRow>&)>& row_found,
                                const std::function<bool()>& stop);

}  // namespace attnbench
