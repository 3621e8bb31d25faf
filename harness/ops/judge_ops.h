// What the judge asks of an op: ops/<op>/judge.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "harness/judge/expected.h"
#include "harness/judge/verify.h"

namespace attnbench {

struct JudgeOps {
  /// verify()
  Verdict (*verify)(const Workload&, const HostOutputs&, const Numerics&, const Check&, int num_threads);
  /// expected_outputs()
  void (*expect)(const Workload&, const HostOutputs& got, const Numerics&, const Check&, int num_threads,
                 ExpectedOutputs&);
  // Ops whose queries meet keys have the following; for others they are null.
  /// verify_launch()
  Verdict (*verify_launch)(const Case&, const HostOutputs&, const Numerics&, const Check&,
                           int num_threads) = nullptr;
  /// laid_over() and first_difference() of bitwise.h
  HostOutputs (*laid_over)(const CaseParams&, HostOutputs base, const CaseParams& other_params,
                           const HostOutputs& other, std::span<const int32_t> ids) = nullptr;
  std::optional<std::string> (*first_difference)(const CaseParams&, const HostOutputs& a,
                                                 const HostOutputs& b) = nullptr;
};

ATTNBENCH_OP_TABLE(JudgeOps, kJudgeOps, judge_ops)

}  // namespace attnbench
