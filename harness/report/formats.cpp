#include "harness/report/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "harness/error.h"
#include "harness/report/csv.h"
#include "harness/report/junit.h"
#include "harness/report/markdown.h"
#include "harness/results/files.h"
#include "harness/results/json.h"

namespace attnbench {

namespace fs = std::filesystem;

const std::vector<std::string>& report_formats() {
  static const std::vector<std::string> names = {"json", "csv", "md", "junit"};
  return names;
}

void check_formats(std::span<const std::string> formats) {
  const auto& known = report_formats();
  for (const std::string& name : formats) {
    if (std::ranges::find(known, name) != known.end()) continue;
    std::string allowed;
    for (const std::string& k : known) allowed += (allowed.empty() ? "" : ", ") + k;
    throw Error(fmt::format("unknown format '{}': allowed are {}", name, allowed));
  }
}

std::vector<fs::path> write_reports(const fs::path& dir, std::span<const std::string> formats,
                                    const RunContext& context, std::span<const Record> records) {
  check_formats(formats);
  make_folder(dir);
  std::vector<fs::path> paths;
  const auto write_one = [&](const char* name, const std::string& text) {
    paths.push_back(dir / name);
    write_file_atomically(paths.back(), text);
  };
  const auto asked = [&](const char* name) { return std::ranges::find(formats, name) != formats.end(); };
  write_one("results.json", results_text(results_to_json(context, records)));
  std::ostringstream text;
  if (asked("csv")) {
    write_csv(text, records);
    write_one("results.csv", text.str());
  }
  if (asked("md")) {
    text.str("");
    write_markdown(text, context, records);
    write_one("results.md", text.str());
  }
  if (asked("junit")) {
    text.str("");
    write_junit(text, context, records);
    write_one("junit.xml", text.str());
  }
  return paths;
}

}  // namespace attnbench
