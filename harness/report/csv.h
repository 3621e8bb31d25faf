// One row per record, for spreadsheets and data frames.
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "harness/results/record.h"

namespace attnbench {

/// An entry's `attnbench` in JSON, with the columns of kCsvColumns that are no fields of it.
nlohmann::ordered_json row_of(const Record& r);
/// A value of it as text; empty if it is unknown.
std::string cell_text(const nlohmann::ordered_json& value);

/// Header and rows, each ended by "\n". Fields are quoted as in RFC 4180. An unknown figure is empty. New
/// columns are only added at the end.
void write_csv(std::ostream& out, std::span<const Record> records);

/// One field: printable (harness/results/text.h), behind a quotation mark if it would be a formula, quoted if it holds a comma, a quote or a line break.
std::string csv_field(std::string_view text);

}  // namespace attnbench
