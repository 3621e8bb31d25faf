// Each compared row of an attention case by itself: what is wrong with it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/cases/case.h"
#include "harness/verify/error_model.h"
#include "harness/workload/workload.h"
#include "reference/reference.h"

namespace attnbench {

struct RowFinding {
  reference::RowId id;
  int64_t keys = 0;  ///< that the row sees
  bool wrong_o = false;
  bool wrong_lse = false;
  bool nan = false;        ///< an element of O is not finite, or the LSE is NaN
  bool unwritten = false;  ///< the LSE has the bits that it had before the launch
  int wrong_channels = 0;
  int first_channel = -1, last_channel = -1;  ///< of the wrong ones
  double factor = 0;  ///< O is the expected row times this; 0: it is no multiple of it, or the expected row
  double lse = 0, expected_lse = 0;

  bool wrong() const { return wrong_o || wrong_lse; }
};

/// The outputs of a launch, and what computed them.
struct Launched {
  const Case& item;
  const HostOutputs& outputs;
  const Numerics& numerics;
};

/// The rows judged one by one against the reference on `problem` and `inputs`, which may be other ones than
/// the case's, in (seq, pos, head) order. threads 0: all.
std::vector<RowFinding> find_rows(const Launched& launched, const reference::Problem& problem,
                                  const reference::Inputs& inputs, std::span<const reference::RowId> rows,
                                  int num_threads);

/// The error model of a case on a kernel.
ErrorModel error_model_of(const Case& c, const Numerics& numerics);

}  // namespace attnbench
