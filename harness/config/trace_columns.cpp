#include "harness/config/trace_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace attnbench {

std::string read_trace_columns(std::string_view text, TraceColumns& columns) {
  const std::pair<std::string_view, std::string*> parts[] = {{"arrival", &columns.arrival},
                                                             {"prompt", &columns.prompt},
                                                             {"output", &columns.output},
                                                             {"prefix", &columns.prefix}};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = std::min(item.find('='), item.size());
    const auto* const part = std::find_if(std::begin(parts), std::end(parts),
                                          [&](const auto& p) { return p.first == item.substr(0, equals); });
    if (part == std::end(parts) || equals + 1 >= item.size() || !part->second->empty()) {
      return fmt::format(
          "'{}' is no name of a column; give each of arrival, prompt, output and prefix at most once, such as "
          "arrival=arrived_at,prompt=num_prefill_tokens",
          item.substr(0, 80));
    }
    *part->second = item.substr(equals + 1);
  }
  return "";
}

}  // namespace attnbench
