// O as a launch stored it: the numbers of its type, times their scale.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "harness/tensors/descales.h"

namespace attnbench {

/// The type and the scale of O in a case.
struct StoredOut {
  explicit StoredOut(const Case& c) : type(c.params.type_of_out()), scale(out_scale_of(c)) {}

  /// Element `i` of O.
  double value(const std::vector<unsigned char>& out, int64_t i) const {
    return static_cast<double>(load_float(type, out.data(), i)) * scale;
  }
  /// The reference's `o` as far as the type reaches: e4m3 saturates at 448 scales.
  double reachable(double o) const {
    return type == DType::kE4m3 ? std::clamp(o, -448.0 * scale, 448.0 * scale) : o;
  }
  /// `o` as the type holds it.
  float rounded(double o) const { return round_to(type, static_cast<float>(o / scale)); }

  DType type;
  double scale;
};

}  // namespace attnbench
