// Sums and worst places over the rows of O that verify_attention compares.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "harness/facts/verdict.h"
#include "harness/judge/made_up.h"
#include "harness/judge/power.h"

namespace attnbench {

/// Sums over compared rows. Each block of rows has its own, which is then added under a lock: blocks are
/// large, so sums per thread would save nothing.
struct AttentionTotals {
  Verdict v;
  double sum_z2 = 0;
  int64_t elements = 0, wrong_rows = 0;
  double sxx = 0, sxy = 0;  // slope of the error on o, weighted by 1 / sigma^2 and by row
  double mean_xy = 0;       // sxy if O were the mean of the visible values
  MadeUp zeros, mean;
  PowerTotals power;
  struct Slope {
    double xx, xy, mean_xy;
  };
  /// The same sums of rows that one key carries; rows with the same output count once.
  std::unordered_map<uint64_t, Slope> one_key;
  double worst_abs_z = -1;
  struct Place {
    int seq, pos, head;
    double figure, limit;
    double expected = 0;  ///< the LSE's, for worst_lse
  };
  std::optional<Place> worst_row, worst_lse;
  struct WorstP {
    int seq, pos, head, key;
    double got, expected, z;
  };
  std::optional<WorstP> worst_p;

  /// NaN is the worst, whichever thread meets it first.
  static void note(std::optional<Place>& worst, Place place) {
    if (std::isnan(place.figure)) place.figure = INFINITY;
    if (!worst || !(place.figure / place.limit <= worst->figure / worst->limit)) worst = place;
  }

  void add(const AttentionTotals& t) {
    v.rows += t.v.rows;
    v.max_abs = larger_error(v.max_abs, t.v.max_abs);
    v.max_ulp = larger_error(v.max_ulp, t.v.max_ulp);
    v.max_rel = larger_error(v.max_rel, t.v.max_rel);
    sum_z2 += t.sum_z2;
    elements += t.elements;
    wrong_rows += t.wrong_rows;
    sxx += t.sxx;
    sxy += t.sxy;
    mean_xy += t.mean_xy;
    zeros.add(t.zeros);
    mean.add(t.mean);
    power.add(t.power);
    one_key.insert(t.one_key.begin(), t.one_key.end());
    if (t.worst_abs_z > worst_abs_z) {
      worst_abs_z = t.worst_abs_z;
      v.worst = t.v.worst;
    }
    if (t.worst_row) note(worst_row, *t.worst_row);
    if (t.worst_lse) note(worst_lse, *t.worst_lse);
    if (t.worst_p && (!worst_p || t.worst_p->z > worst_p->z)) worst_p = t.worst_p;
  }
};

}  // namespace attnbench
