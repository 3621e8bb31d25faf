// Results as GitHub Markdown: for step summaries, pull requests and issues.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

#include "harness/record/record.h"

namespace attnbench {

/// A heading, what it ran on, the summary line, a table of all records, then what failed with reason and
/// repro.
void write_markdown(std::ostream& out, const RunContext& context, std::span<const Record> records);

/// Text of a table cell or a paragraph, on one line, in which nothing acts as markup.
std::string markdown_text(std::string_view text);

/// A code span of a table cell.
std::string markdown_code(std::string_view text);

}  // namespace attnbench
