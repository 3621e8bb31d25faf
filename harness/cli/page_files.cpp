#include "harness/cli/page_files.h"

#include <iostream>

#include "harness/cli/common.h"
#include "harness/cli/option.h"
#include "harness/results/files.h"

namespace attnbench::cli {

void PageFiles::add(CLI::App& command, const std::string& json_text, const std::string& svg_text) {
  const auto option = [&](const char* name, std::string& file, const std::string& text) {
    path_option(command, name, file, "FILE", text);
  };
  option("--json", json, json_text);
  option("--svg", svg, svg_text);
  option("--html", html, "Write a page with the figures and the plot; it needs no other file");
}

void PageFiles::check() const {
  for (const std::string& file : {json, svg, html}) {
    if (!file.empty()) check_writable(file);
  }
}

void PageFiles::write(const StaticPage& page, const std::function<std::string()>& make_json) const {
  const auto write_one = [](const std::string& file, const std::string& text) {
    write_file_atomically(file, text);
    std::cout << "report: " << file << '\n';
  };
  if (!json.empty()) write_one(json, make_json());
  if (!svg.empty()) write_one(svg, write_svg(page.chart));
  if (!html.empty()) write_one(html, write_static_page(page));
}

}  // namespace attnbench::cli
