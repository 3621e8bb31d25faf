#include "harness/launch/numerics_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace attnbench {
namespace {

/// ex2.approx.ftz.bf16x2 is the coarsest exponential of a GPU (PTX ISA: 2^-7). Kernels of libraries declare up to 2^-9.
constexpr double kMostExpError = 0x1p-7;
/// Sums of e4m3 products in Hopper's matrix unit keep 13 to 14 bits; operands in TF32 keep 11.
constexpr double kMostMmaRoundoff = 0x1p-10;
/// A kernel subtracts the largest score that it has seen, or one below it: the heaviest key weighs 1 or more.
constexpr double kLeastPScale = 1.0;

struct Type {
  const char* field;
  DType value;
  std::vector<DType> allowed;
};
struct Figure {
  const char* field;
  double value, least, most;
  const char* bounds;
};

}  // namespace

std::optional<std::string> out_of_bounds(const Numerics& n) {
  using enum DType;
  const Type types[] = {{"p_type", n.p_type, {kFp32, kFp16, kBf16, kE4m3, kE5m2, kInt8}},
                        {"acc_type", n.acc_type, {kFp32, kFp16, kBf16}},
                        {"head_grad_type", n.head_grad_type, {kFp32, kFp16, kBf16}}};
  for (const Type& t : types) {
    if (std::find(t.allowed.begin(), t.allowed.end(), t.value) != t.allowed.end()) continue;
    std::string names;
    for (const DType allowed : t.allowed)
      names += (names.empty() ? "" : ", ") + std::string(dtype_name(allowed));
    return fmt::format("{} is {}, and {} are allowed", t.field, dtype_name(t.value), names);
  }
  const Figure figures[] = {{"exp_rel_err", n.exp_rel_err, 0, kMostExpError, "0 to 2^-7 is"},
                            {"mma_roundoff", n.mma_roundoff, 0, kMostMmaRoundoff, "0 to 2^-10 is"},
                            {"input_roundoff", n.input_roundoff, 0, kMostMmaRoundoff, "0 to 2^-10 is"},
                            {"p_scale", n.p_scale, kLeastPScale, std::numeric_limits<double>::max(),
                             "1 or a larger finite number is"}};
  for (const Figure& f : figures) {
    if (f.value >= f.least && f.value <= f.most) continue;
    return fmt::format("{} is {}, and {} allowed", f.field, f.value, f.bounds);
  }
  return std::nullopt;
}

}  // namespace attnbench
