// What a case asks of its op: ops/<op>/case.cpp.
#pragma once

#include <functional>
#include <string_view>

#include "harness/cases/checks.h"
#include "harness/cases/cost.h"
#include "harness/ops/op.h"

namespace attnbench {

struct CaseOps {
  /// Checks the keys of the op against each other and against the batch. `given`: whether a sweep sets the key.
  void (*check)(const CaseParams&, const GivenKeys& given, const FailAt& fail);
  /// Sets the figures of a cost. Counts of tokens are set already.
  void (*set_cost)(const CaseParams&, DrawSeed, CaseCost&);
};

ATTNBENCH_OP_TABLE(CaseOps, kCaseOps, case_ops)

}  // namespace attnbench
