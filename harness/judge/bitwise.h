// Comparison of the outputs of two launches of one problem.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/tensors/workload.h"

namespace attnbench {

/// The row of each sequence's first query in packed outputs, and behind them the number of rows.
std::vector<int64_t> q_begins(const CaseParams& p);

/// `base` with the rows of some sequences replaced by those of another launch. `other` holds the outputs of
/// `other_case`, whose sequence i is sequence ids[i] of `c`, with as many queries (ids empty: sequence i).
HostOutputs laid_over(const Case& c, HostOutputs base, const Case& other_case, const HostOutputs& other,
                      std::span<const int32_t> ids);

/// The first element of O, LSE or probabilities, or of the gradients, whose bits differ, in words; nullopt if all
/// are equal.
std::optional<std::string> first_difference(const Case& c, const HostOutputs& a, const HostOutputs& b);

/// Merges two states of disjoint sets of keys in double: O = sum of w_i O_i with w_i = exp(LSE_i - LSE),
/// rounded to the case's dtype. Sets extra_variance for the roundings of the O_i.
HostOutputs merged(const Case& c, const HostOutputs& a, const HostOutputs& b);

/// Outputs of a launch on `c` whose buffers have more tokens than `c`, behind those of the last sequence.
struct PaddedOutputs {
  HostOutputs outputs;                         ///< without the padding
  std::optional<std::string> padding_written;  ///< first padding that was written, in words; nullopt: none
};
PaddedOutputs cut_padding(const Case& c, HostOutputs padded);

}  // namespace attnbench
