// Known mistakes of kernels, each as another problem that the reference can solve.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "reference/reference.h"

namespace attnbench {

/// One mistake, in words, and the problem and inputs that a kernel with this mistake computes.
struct Suspect {
  std::string text;
  std::function<void(reference::Problem&)> change;  ///< makes the problem from the right one
  reference::Problem problem;
  std::shared_ptr<const reference::Inputs> inputs;
  bool misreads = false;  ///< `inputs` are not the case's own
  bool in_pairs = true;   ///< tried as one of two mistakes, too
};

/// The mistake that all query heads read K and V of KV head `kv_head`.
Suspect reads_kv_head(const Case& c, const reference::Problem& right, const reference::Inputs& inputs,
                      int kv_head);

/// The mistakes that the case can show. `inputs` are the case's own and must outlive the result.
std::vector<Suspect> suspects_of(const Case& c, const reference::Problem& right,
                                 const reference::Inputs& inputs);

}  // namespace attnbench
