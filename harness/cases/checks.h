// Checks of keys that several ops share. Those of one op are in ops/<op>/case.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "harness/config/case_params.h"

namespace attnbench {

/// Reports a mistake in a key of the sweep. Does not return.
using FailAt = std::function<void(std::string_view key, const std::string& message)>;
/// Whether a sweep sets the key.
using GivenKeys = std::function<bool(std::string_view key)>;
/// The seed of the masks that are drawn; none: no mask is drawn.
using DrawSeed = std::optional<uint64_t>;

/// Keys that contradict each other.
struct Contradiction {
  bool holds;
  const char* key;
  const char* message;
};
/// Reports the first contradiction that holds. `{}` in its message is `word`.
void refuse(const FailAt& fail, std::initializer_list<Contradiction> rows, std::string_view word = {});

/// Most channels of a key, and of a value, that a launch writes to a cache (kernels/contract/attention_params.h).
inline constexpr int32_t kMaxWrittenKey = 256, kMaxWrittenValue = 512;

void check_rotary(const CaseParams& params, const FailAt& fail);
/// Widths of K and V.
void check_widths(const CaseParams& params, const FailAt& fail);
/// For ops without caches whose numbers have scales for blocks of channels.
void check_no_block_scales(const CaseParams& params, const FailAt& fail);
/// `mask: causal_top_left`, pages and bad_launch.
void check_launch(const CaseParams& params, const FailAt& fail);
/// The lengths of each sequence.
void check_lengths(const CaseParams& params, const FailAt& fail);

}  // namespace attnbench
