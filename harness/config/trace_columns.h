// Which columns of a trace are read, where their names are not those of a known form.
#pragma once

#include <string>
#include <string_view>

namespace attnbench {

/// Names of columns, or of fields of JSON lines. Empty: the name that the trace's form has.
struct TraceColumns {
  std::string arrival;  ///< seconds, or a date
  std::string prompt, output;
  std::string prefix;  ///< CSV only

  bool any() const { return !(arrival + prompt + output + prefix).empty(); }
};

/// Reads "arrival=arrived_at,prompt=num_prefill_tokens". Returns what is wrong with it and the mend, or an empty text.
std::string read_trace_columns(std::string_view text, TraceColumns& columns);

}  // namespace attnbench
