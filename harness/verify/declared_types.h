// What a kernel declares of its arithmetic, and what a user requires.
#pragma once

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
                                      {kHostLengths, "host_lengths", "lengths on the host"}};
inline constexpr uint32_t kWaiverFlags = kNoLse | kFinitePadding | kHostLengths;

struct DeclaredTypes {
  DType p = DType::kFp32;    ///< of P as it enters P.V
  DType acc = DType::kFp32;  ///< of the accumulators
  uint32_t waived = 0;       ///< the kernel's flags among kWaiverFlags
};

/// "acc fp32, p bf16", and ", no LSE" and so on: what the checks did not ask of the kernel.
std::string types_text(const DeclaredTypes& types);

/// ", no LSE, finite padding" for these flags.
std::string waived_text(uint32_t flags);

/// The least that attention kernels must declare; nullopt: any type will do.
struct RequiredTypes {
  std::optional<DType> p, acc;
  bool any() const { return p || acc; }
};

/// Reads items "acc=fp32" or "p=bf16" into `required`. Returns what is wrong with them, or an empty string.
std::string read_required(const std::vector<std::string>& items, RequiredTypes& required);

/// What the declared types lack, as a sentence; nullopt: nothing. fp32 is more than fp16 and bf16, which are
/// more than e4m3 and int8.
std::optional<std::string> lacks(const RequiredTypes& required, const DeclaredTypes& declared);

}  // namespace attnbench
