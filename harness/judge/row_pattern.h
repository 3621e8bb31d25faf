// What the wrong rows of a case have in common, and the right ones have not; and where their NaN comes from.
#pragma once

#include <span>
#include <string>

#include "harness/judge/row_findings.h"

namespace attnbench {

/// "all wrong rows, and no right ones, are of heads 1, 2"; empty if no trait separates them.
std::string row_pattern(const CaseParams& p, std::span<const RowFinding> rows);

/// Says that wrong LSEs stand in the order (total_q, Hq), where (Hq, total_q) is required; empty if they do not. `lse`: as
/// the launch left it.
std::string lse_order(const CaseParams& p, std::span<const RowFinding> rows, std::span<const float> lse);

inline constexpr const char* kNanOfV = "the NaN comes from a row of V that must not be read (0 * NaN is NaN)";
/// What nan_source() says where only the bits of O, or another launch, can tell.
inline constexpr const char* kNanOfVOrUnwritten =
    "the NaN comes from a row of V that must not be read (0 * NaN is NaN), or from O that was not written";

/// Where the NaN of wrong rows comes from; empty if there is none, or nothing tells.
std::string nan_source(const CaseParams& p, std::span<const RowFinding> rows);

/// "seq 1 pos 2 head 3".
std::string row_text(const reference::RowId& id);

/// "1, 2, 5 to 8": ascending numbers.
std::string ranges_text(std::span<const int> numbers);

}  // namespace attnbench
