// Which known mistakes a case shows: a right result of such a case speaks against them.
#pragma once

#include <set>
#include <string>

#include "harness/cases/case.h"

namespace attnbench {

/// The texts of those mistakes (mistakes.h) by which an attention case would surely be wrong: of softmax_scale, and of
/// which keys a query sees. Others are left out, because a case may hide them: a softcap far above all scores. Cases that
/// may hide these too have none: data other than normal, queries or outputs of 8 bits, paths of several launches.
std::set<std::string> shown_mistakes(const Case& c);

}  // namespace attnbench
