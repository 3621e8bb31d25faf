// What is wrong with each single row of an attention case.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/judge/error_model.h"
#include "harness/tensors/workload.h"
#include "reference/reference.h"

namespace attnbench {

class CaseInputs;

struct RowFinding {
  reference::RowId id;
  int64_t keys = 0;  ///< number of keys that the row sees
  bool wrong_o = false;
  bool wrong_lse = false;
  bool nan = false;        ///< an element of O is not finite, or the LSE is NaN
  bool inf = false;        ///< what is not finite in O is infinite, and the LSE is no NaN
  bool unwritten = false;  ///< the LSE has the bits that it had before the launch
  bool blank = true;       ///< O has all bits one in all channels, as before the launch, or as poison
  bool zero = true;        ///< O is 0 in all channels
  /// The bits of O, as integers of 16 bits, are the expected numbers but for their fractions.
  bool integers = false;
  int wrong_channels = 0;
  int first_channel = -1, last_channel = -1;  ///< first and last wrong one; -1: none
  int wrong_not_zero = 0;                     ///< wrong elements that are not 0
  double largest_wrong_zero = 0;              ///< absolute expected value of a wrong element that is 0
  double least_not_zero = INFINITY;           ///< absolute expected value of an element that is not 0
  double factor = 0;  ///< O is the expected row times this; 0: O is right, or no multiple of that row
  double lse = 0, expected_lse = 0;
  double mean_z2 = 0;   ///< of O, over the channels
  double relative = 0;  ///< length of the error of O over that of the expected row; 0 if that is 0

  bool wrong() const { return wrong_o || wrong_lse; }
};

/// A mistake, or two, in words, that makes the O of all rows that were tried what it is.
struct Explanation {
  std::string text;
  bool lse_too = false;  ///< and their LSE, too
};

/// The outputs of a launch, with its case and the kernel's declared arithmetic.
struct Launched {
  const Case& item;
  const HostOutputs& outputs;
  const Numerics& numerics;
  uint64_t rows_seed = 0;  ///< of the comparison that found it wrong; 0: no rows were drawn
};

/// Judges each row by itself against the reference's result for `problem` and `inputs`, which may differ from
/// the case's own. Returns the findings in (seq, pos, head) order. num_threads 0: all.
std::vector<RowFinding> find_rows(const Launched& launched, const reference::Problem& problem,
                                  const reference::Inputs& inputs, std::span<const reference::RowId> rows,
                                  int num_threads);

/// Whether the rows of a changed problem match without evidence: none sees a key, so any O of zeros is its result, and
/// the LSE does not say so.
bool match_by_zeros(const Launched& launched, std::span<const RowFinding> rows);

/// What the reference knows of row `r` of a block, for the error model.
RowMoments moments_of(const reference::RowBlock& block, std::size_t r, const CaseInputs& inputs);

/// The error model of a case for a kernel's declared arithmetic.
ErrorModel error_model_of(const Case& c, const Numerics& numerics);

}  // namespace attnbench
