// Times that are known too poorly to be compared.
#pragma once

#include <string>

#include "harness/record/load.h"

namespace attnbench {

/// Says which side's time is not usable (LoadedResult::vague) and which samples make it so: "the time of NEW is
/// known to +/- 352 % only: 3 of 10 samples took 20.10 ms or more, the median is 12.40 ms; ...". Names the worse
/// side. Empty if both times are usable.
std::string vague_time_text(const LoadedResult& base, const LoadedResult& fresh);

}  // namespace attnbench
