// What a kernel declares of its arithmetic, and what a user requires.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/contract/kernel.h"

namespace attnbench {

struct DeclaredTypes {
  DType p = DType::kFp32;       ///< of P as it enters P.V
  DType acc = DType::kFp32;     ///< of the accumulators
  bool no_lse = false;          ///< kNoLse: the LSE is not judged
  bool finite_padding = false;  ///< kFinitePadding: no NaN where nothing must be read
};

/// "acc fp32, p bf16", and "no LSE", "finite padding" where they are declared.
std::string types_text(const DeclaredTypes& types);

/// ", no LSE" and ", finite padding": what the checks did not ask of a kernel.
std::string waived_text(bool no_lse, bool finite_padding);

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
