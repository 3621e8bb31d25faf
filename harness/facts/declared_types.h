// What a kernel declares of its arithmetic, and what a user requires.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/contract/kernel.h"

namespace attnbench {

/// A flag by which a kernel is asked for less.
struct Waiver {
  KernelFlag flag;
  const char* key;   ///< in results.json
  const char* text;  ///< in the summary
};
inline constexpr Waiver kWaivers[] = {{kNoLse, "no_lse", "no LSE"},
                                      {kFinitePadding, "finite_padding", "finite padding"},
                                      {kHostLengths, "host_lengths", "lengths on the host"},
                                      {kServesDecode, "serves_decode", "serves decode"},
                                      {kServesPrefill, "serves_prefill", "serves prefill"},
                                      {kServesAppend, "serves_append", "serves append"},
                                      {kNoEmptyRows, "no_empty_rows", "no empty rows"},
                                      {kNoIdleSequences, "no_idle_sequences", "no idle sequences"},
                                      {kNoShortKv, "no_short_kv", "no short KV"},
                                      {kDenseInputs, "dense_inputs", "dense inputs"}};
inline constexpr uint32_t kWaiverFlags = [] {
  uint32_t flags = 0;
  for (const Waiver& w : kWaivers) flags |= w.flag;
  return flags;
}();

struct Declared {
  Numerics numerics{DType::kFp32, DType::kFp32, 0};
  uint32_t waived = 0;  ///< the kernel's flags among kWaiverFlags
};

/// A number of Numerics: its name in results.json and in options.
struct DeclaredNumber {
  const char* key;
  double Numerics::*field;
  bool is_error;  ///< less of it is more precise
};
inline constexpr std::array kDeclaredNumbers = {
    DeclaredNumber{"exp_rel_err", &Numerics::exp_rel_err, true},
    DeclaredNumber{"mma_roundoff", &Numerics::mma_roundoff, true},
    DeclaredNumber{"p_scale", &Numerics::p_scale, false},
    DeclaredNumber{"input_roundoff", &Numerics::input_roundoff, true},
};

/// "acc fp32, p e4m3, exp_rel_err 2^-22, mma_roundoff 2^-13, p_scale 4" without defaults, and ", no LSE" and so on: what
/// the checks did not ask of the kernel.
std::string types_text(const Declared& declared);

/// ", no LSE, finite padding" for these flags.
std::string waived_text(uint32_t flags);

/// The least that attention kernels must declare; nullopt: anything will do.
struct Required {
  std::optional<DType> p, acc;
  std::array<std::optional<double>, kDeclaredNumbers.size()> numbers;
  bool any = false;
};

/// Reads items "acc=fp32", "p=bf16" or "exp_rel_err=2^-11" into `required`. Returns what is wrong with them, or an
/// empty string.
std::string read_required(const std::vector<std::string>& items, Required& required);

/// What the kernel declares too little of, as a sentence; nullopt: nothing. fp32 is more than fp16 and bf16, which are
/// more than e4m3 and int8.
std::optional<std::string> lacks(const Required& required, const Numerics& declared);

}  // namespace attnbench
