// The files that `trace` and `serve-sim` write beside what they print: --json, --svg and --html.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>

#include "harness/report/html/static_page.h"

namespace attnbench::cli {

/// Names of files; an empty one is not written.
struct PageFiles {
  std::string json, svg, html;

  /// Adds the three options, whose texts say what --json and --svg hold. The object must outlive the parsing.
  void add(CLI::App& command, const std::string& json_text, const std::string& svg_text);
  /// Throws FileError for the first file that cannot be written: before the work, not after it.
  void check() const;
  /// Writes the files, and prints their names. `make_json` runs if --json was given.
  void write(const StaticPage& page, const std::function<std::string()>& make_json) const;
};

}  // namespace attnbench::cli
