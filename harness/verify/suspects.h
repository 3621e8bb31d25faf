// Mistakes that kernels are known for, as other problems that the reference can solve.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "reference/reference.h"

namespace attnbench {

/// A kernel that makes the mistake of `text` computes this problem on these inputs.
struct Suspect {
  std::string text;
  reference::Problem problem;
  std::shared_ptr<const reference::Inputs> inputs;
};

/// The mistakes that the case could show. `inputs`: the case's own, which must outlive them.
std::vector<Suspect> suspects_of(const Case& c, const reference::Problem& right,
                                 const reference::Inputs& inputs);

}  // namespace attnbench
