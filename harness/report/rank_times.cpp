#include "harness/report/rank_times.h"

#include <fmt/format.h>

namespace attnbench {

std::vector<std::string> rank_lines(std::span<const Record> records) {
  std::vector<std::string> lines;
  for (const Record& r : records) {
    if (r.status != Status::kPass || !r.time || r.time->ranks.empty()) continue;
    lines.push_back(fmt::format(
        "{}: {:.1f} us to the end of the slowest rank; their clocks start at most {:.1f} us apart{}",
        record_name(r), r.time->median_us, r.time->skew_us,
        r.time->alone_us ? fmt::format("; exchanges alone take {:.1f} us", *r.time->alone_us) : ""));
    for (std::size_t i = 0; i < r.time->ranks.size(); ++i) {
      const RankTimes& t = r.time->ranks[i];
      lines.push_back(
          fmt::format("  rank {}: {:.1f} us = attention {:.1f} + communication {:.1f} + correction {:.1f}", i,
                      t.total_us, t.attention_us, t.communication_us, t.correction_us));
    }
  }
  return lines;
}

}  // namespace attnbench
