// Results as GitHub Markdown: for step summaries, pull requests and issues.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

#include "harness/results/record.h"

namespace attnbench {

/// A heading, what was run on, the summary line, a table of all records, then reason and repro of failed
/// ones.
void write_markdown(std::ostream& out, const RunContext& context, std::span<const Record> records);

/// Text for a table cell or a paragraph: one line, in which nothing acts as markup.
std::string markdown_text(std::string_view text);

/// A code span for a table cell.
std::string markdown_code(std::string_view text);

}  // namespace attnbench
