// What a set of records comes to, in words.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/results/coverage.h"
#include "harness/results/record.h"

namespace attnbench {

/// The unit in which rates of matrix products are printed.
struct RateUnit {
  const char* name;
  double per_tflops;  ///< a rate in TFLOP/s times this
};

/// GFLOP/s where all results are of a CPU, else TFLOP/s.
inline RateUnit rate_unit(bool cpu) { return cpu ? RateUnit{"GFLOP/s", 1e3} : RateUnit{"TFLOP/s", 1}; }
RateUnit rate_unit_of(std::span<const Record> records);

/// "132 passed, 0 failed, 4 skipped, 0 errors", with " (3 not checked)" (--check off), ", 2 undecided", " (1 timeout)" of
/// the errors, and ", 1 invalid time" if there are any.
std::string summary_text(std::span<const Record> records);

/// True for a status that a reader must look at: neither pass nor skip.
bool needs_attention(Status s);

/// Remarks on times that count nevertheless: "3 cases throttled (sw_power_cap), 1 with host-bound samples, 2
/// near the time of an empty launch"; empty if there are none.
std::string time_marks(std::span<const Record> records);

/// Whether a time takes part in a ranking of kernels: it has neither mark, `?` nor `!`.
inline bool is_ranked(const TimeResult& t) { return !t.vague() && !t.busy(); }

/// What stands behind a time: "!" (TimeResult::busy).
std::string time_mark(const TimeResult& t);

/// The legends of these marks, and of "?" (vague), that some time has.
std::vector<std::string> time_legends(std::span<const Record> records);

/// The times whose samples fall into two groups, with what that means; empty if there are none. At most five are named.
std::string two_speed_times(std::span<const Record> records);

/// The legend of the mark "*" behind %SOL and bound; empty unless the ceilings are `disturbed` and some record has %SOL.
std::string ceilings_legend(std::span<const Record> records, bool disturbed);

/// Why runs were skipped, most frequent first: "12 runs: sm90_decode: head_dim 64, 128 or 256 required, given 96".
/// Reasons that differ in numbers alone count as one; the first of them is shown.
std::vector<std::string> skip_reasons(std::span<const Record> records);

/// Which kernel is fastest on the cases that it shares with another, one line for each other kernel: "new is
/// 3.3 times as fast as old (geometric mean of 12 cases, 5 disturbed left out)". Only times that are ranked
/// (is_ranked) count. Empty where no two kernels share a case with usable times.
std::vector<std::string> relative_speeds(std::span<const Record> records);

/// Cases run and declared types of a kernel: "mine: 1 of 3 cases run (33.3 %), declares acc fp32, p bf16".
std::string coverage_text(const Coverage& c);

/// What became of each kernel's invariants, over all its cases: "mine: 24 invariants held, 1 was broken, 8 were
/// skipped". Empty where none were tried.
std::vector<std::string> invariant_sums(std::span<const Record> records);

/// The legend of the mark "^" that z_cell sets; empty if no record has it.
std::string other_check_legend(std::span<const Record> records);

/// The smallest mistakes that the verdicts on passed cases would have seen (Verdict::power), as ranges over the cases:
/// "softmax_scale off by 0.03 % to 0.4 %" and others; empty if no case has one.
std::vector<std::string> seen_mistakes(std::span<const Record> records);

/// Number of checked rows: "512", or "512/4096" if not all were checked.
std::string rows_text(const Verdict& v);

}  // namespace attnbench
