// Known mistakes of kernels, each as another problem that the reference can solve. Clues look for them, and the selftest
// makes them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/judge/misread.h"
#include "reference/reference.h"

namespace attnbench {

/// One mistake, and the problem and inputs that a kernel with this mistake computes.
struct Mistake {
  std::string text;                                 ///< in a clue
  std::function<void(reference::Problem&)> change;  ///< makes the problem from the right one
  reference::Problem problem;
  std::shared_ptr<const reference::Inputs> inputs;
  bool misreads = false;                       ///< `inputs` are not the right ones
  bool in_pairs = true;                        ///< a clue tries it as one of two mistakes, too
  std::string fault;                           ///< the selftest's fault that makes it; empty: none
  bool rare = false;                           ///< named only where no other mistake fits
  std::shared_ptr<const Case> item = nullptr;  ///< whose types the outputs have; null: the case itself
};

/// What mistakes depend on beside the problem.
struct Layout {
  int page_size = 0;  ///< tokens of a page; 0: K and V are not paged
  std::vector<int>
      leftpad;  ///< of each sequence: tokens before its first key, in its first page; empty: none
  bool custom_mask = false;
  bool key_lists = false;
  bool v_is_k_view = false;
};

/// The mistake that inputs are read as `how` says.
Mistake misread_mistake(const reference::Problem& right, const reference::Inputs& inputs, std::string fault,
                        std::string text, Misread::How how);

/// The mistake that all query heads read K and V of KV head `kv_head`.
Mistake reads_kv_head(const reference::Problem& right, const reference::Inputs& inputs, int kv_head);

/// The mistakes that such a problem can show, whatever its values are. `inputs` are the right ones and must outlive the
/// result.
std::vector<Mistake> mistakes_of(const reference::Problem& right, const Layout& layout,
                                 const reference::Inputs& inputs);
/// Mistakes in the descales, scales of blocks and small numbers of a case, in which rows of K and V are read, and in what
/// is read of a row. All arguments must outlive the result.
std::vector<Mistake> stored_mistakes(const Case& c, const reference::Problem& right,
                                     const reference::Inputs& inputs);
std::vector<Mistake> place_mistakes(const Case& c, const reference::Problem& right,
                                    const reference::Inputs& inputs);
std::vector<Mistake> input_mistakes(const Case& c, const reference::Problem& right,
                                    const reference::Inputs& inputs);
/// All mistakes of a case.
std::vector<Mistake> mistakes_of(const Case& c, const reference::Problem& right,
                                 const reference::Inputs& inputs);

}  // namespace attnbench
