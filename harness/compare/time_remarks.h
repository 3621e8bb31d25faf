// Times that are known too poorly to be compared, and what else there is to know of times.
#pragma once

#include <string>

#include "harness/compare/ratio.h"
#include "harness/results/record.h"

namespace attnbench {

/// Says which side's time is not usable (TimeResult::vague) and which samples make it so: "the time of NEW is
/// known to +/- 352 % only: 3 of 10 samples took 20.10 ms or more, the median is 12.40 ms; ...". Names the worse
/// side. Empty if both times are usable.
std::string vague_time_text(const Record& base, const Record& fresh);

/// What else a reader should know of the times of one run a side, where the figures do not say it: their samples fall
/// into two groups, or the GPU was throttled. Empty if neither.
std::string remark_on_times(const Record& base, const Record& fresh);

/// True if the medians show more of a change than the ratio, by more than the effect: times come in steps.
bool medians_say_more(const MedianRange& base, const MedianRange& fresh, double ratio, double effect);

}  // namespace attnbench
