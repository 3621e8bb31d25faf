// dq, dk and dv as a launch left them, and what is summed over their rows.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "harness/facts/verdict.h"
#include "harness/judge/made_up.h"
#include "harness/ops/attention_backward/judge_mistakes.h"

namespace attnbench {

inline std::size_t slot(int64_t i) { return static_cast<std::size_t>(i); }

/// Where a gradient's row is: `pos` counts queries (dq) or keys (dk, dv).
struct GradPlace {
  int seq, pos, head;
};

/// One of dq, dk and dv in memory: (tokens, heads, dim).
struct Gradient {
  Grad of;
  const char* name;
  const std::vector<unsigned char>* values;
  DType dtype;
  int heads, dim;
  std::vector<int64_t> begin;  ///< first token of each sequence

  int64_t row(const GradPlace& p) const {
    return ((begin[slot(p.seq)] + p.pos) * heads + p.head) * int64_t{dim};
  }
  double get(const GradPlace& p, int channel) const {
    return static_cast<double>(load_float(dtype, values->data(), row(p) + channel));
  }
  std::string text(const GradPlace& p) const {
    return fmt::format("{} of seq {} pos {} head {}", name, p.seq, p.pos, p.head);
  }
};

/// Sums over the compared rows of one gradient.
struct GradTotals {
  int64_t rows = 0, elements = 0;
  int64_t wrong_rows = 0;  ///< by max_z or row_z2
  int64_t nan_rows = 0;    ///< of these
  std::vector<GradRow> seen;
  double max_z = -1, sum_z2 = 0;
  double max_abs = 0, max_rel = 0, max_ulp = 0;
  WorstElement worst;
  double worst_row = -1, worst_z2 = 0, worst_limit = 1;
  GradPlace worst_row_place{};
  double sxx = 0, sxy = 0;  ///< slope of the error on the value, weighted as for the forward pass
  /// Sums over wrong rows of value^2, value * error and error^2, weighted by 1 / sigma^2.
  double wrong_xx = 0, wrong_xy = 0, wrong_yy = 0;
  MadeUp zeros;
  double of_one_pair = 0;  ///< part of sxx by rows that one (query, key) pair carries

  void add(const GradTotals& t) {
    rows += t.rows;
    elements += t.elements;
    wrong_rows += t.wrong_rows;
    nan_rows += t.nan_rows;
    seen.insert(seen.end(), t.seen.begin(), t.seen.end());
    wrong_xx += t.wrong_xx;
    wrong_xy += t.wrong_xy;
    wrong_yy += t.wrong_yy;
    sum_z2 += t.sum_z2;
    max_abs = larger_error(max_abs, t.max_abs);
    max_rel = larger_error(max_rel, t.max_rel);
    max_ulp = larger_error(max_ulp, t.max_ulp);
    sxx += t.sxx;
    sxy += t.sxy;
    of_one_pair += t.of_one_pair;
    zeros.add(t.zeros);
    if (t.max_z > max_z) {
      max_z = t.max_z;
      worst = t.worst;
    }
    if (t.worst_row > worst_row) {
      worst_row = t.worst_row;
      worst_z2 = t.worst_z2;
      worst_limit = t.worst_limit;
      worst_row_place = t.worst_row_place;
    }
  }
};

}  // namespace attnbench
