// Numbers in JSON, which has neither infinity nor NaN.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace attnbench {

/// null if the number is missing or not finite.
inline nlohmann::ordered_json finite_or_null(double x) {
  return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr);
}
inline nlohmann::ordered_json finite_or_null(const std::optional<double>& x) {
  return x ? finite_or_null(*x) : nlohmann::ordered_json(nullptr);
}

}  // namespace attnbench
