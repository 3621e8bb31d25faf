// Judges the queries that kv_append returns.
#pragma once

#include <optional>
#include <string>

#include "harness/judge/verify.h"
#include "harness/ops/kv_append/judge_rows.h"

namespace attnbench {

/// Compares every byte of query_out: rows of tokens as judge_cache.h does with keys, and that rows of padding
/// tokens and the padding between rows are as they were, 0xff. Returns the first difference, in words, and
/// describes it in `worst`. Sets `expected` to the right bytes.
std::optional<std::string> check_query_out(const Workload& w, const AppendedRows& rows,
                                           const HostOutputs& outputs, WorstElement& worst,
                                           std::vector<unsigned char>& expected);

/// The mistakes that give all wrong queries, of at most 64 that are tried.
std::vector<std::string> query_clues(const Workload& w, const AppendedRows& rows, const HostOutputs& outputs);

}  // namespace attnbench
