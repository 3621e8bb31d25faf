// The pages (Markdown): short lines, links that lead somewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/tree_files.h"

namespace attnbench {
namespace {

constexpr std::size_t kMostColumns = 100, kMostPages = 40;
constexpr std::ptrdiff_t kMostLines = 5000;  ///< of all pages

struct Line {
  int number;
  std::string text;
};

/// The lines of prose of a page: what stands in no table, no code and no generated block.
std::vector<Line> prose(const std::string& page) {
  std::vector<Line> out;
  std::istringstream in(page);
  bool code = false, generated = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::size_t begin = line.find_first_not_of(' ');
    const std::string_view text = std::string_view(line).substr(begin == line.npos ? line.size() : begin);
    if (text.starts_with("```")) {
      code = !code;
      continue;
    }
    if (text.starts_with("<!-- ")) generated = !text.starts_with("<!-- end");
    if (code || generated || text.starts_with("|") || begin >= 4 || text.starts_with("<!--")) continue;
    out.push_back({number, line});
  }
  return out;
}

/// Columns of a line, where a character counts once however many bytes it takes.
std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

/// Lines that could be broken and are too long, as "file:line".
std::vector<std::string> long_lines(const std::string& file, const std::string& page) {
  std::vector<std::string> out;
  for (const Line& l : prose(page)) {
    const std::size_t space = l.text.find(' ', l.text.find_first_not_of(" -"));
    if (columns(l.text) > kMostColumns && space < kMostColumns)
      out.push_back(file + ":" + std::to_string(l.number));
  }
  return out;
}

/// The anchor that GitHub gives a heading.
std::string anchor_of(const std::string& heading) {
  std::string out;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_') {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (c == ' ') {
      out += '-';
    }
  }
  return out;
}

std::set<std::string> anchors_of(const std::string& page) {
  std::set<std::string> out;
  for (const Line& l : prose(page)) {
    const std::size_t text = l.text.find_first_not_of('#');
    if (text > 0 && text != l.text.npos && l.text[text] == ' ')
      out.insert(anchor_of(l.text.substr(text + 1)));
  }
  return out;
}

/// Links of a page into the tree that lead nowhere.
std::vector<std::string> broken_links(const std::string& file, const std::string& page) {
  static const std::regex pattern(R"re(\]\(([^)\s]+)\))re");
  std::vector<std::string> out;
  for (std::sregex_iterator it(page.begin(), page.end(), pattern), end; it != end; ++it) {
    const std::string link = (*it)[1];
    if (link.find("://") != link.npos) continue;
    const std::size_t hash = link.find('#');
    const std::string path = link.substr(0, hash);
    const auto target = path.empty() ? tree::root() / file : (tree::root() / file).parent_path() / path;
    const bool exists = std::filesystem::exists(target);
    const bool found =
        exists && (hash == link.npos || anchors_of(tree::read(target)).count(link.substr(hash + 1)));
    if (!found) out.push_back(std::string(file).append(": ").append(link));
  }
  return out;
}

TEST(TreePages, TheChecksSeeWhatIsWrong) {
  const std::string words(12, 'w');
  std::string line;
  for (int i = 0; i < 9; ++i) line += words + " ";
  EXPECT_EQ(long_lines("f", line).size(), 1u);
  EXPECT_TRUE(long_lines("f", "| " + line).empty()) << "a table";
  EXPECT_TRUE(long_lines("f", "```\n" + line + "\n```").empty()) << "code";
  EXPECT_EQ(broken_links("README.md", "[a](README.md) [b](nothing.md) [c](#nowhere)").size(), 2u);
}

TEST(TreePages, LinesAreShort) {
  for (const std::string& file : tree::files({".md"})) {
    for (const std::string& place : long_lines(file, tree::read(tree::root() / file)))
      ADD_FAILURE() << place << ": over " << kMostColumns << " columns";
  }
}

TEST(TreePages, AreFew) {
  const std::vector<std::string> files = tree::files({".md"});
  std::ptrdiff_t lines = 0;
  for (const std::string& file : files) lines += std::ranges::count(tree::read(tree::root() / file), '\n');
  EXPECT_LE(files.size(), kMostPages);
  EXPECT_LE(lines, kMostLines) << "a page that grows takes its lines from another one";
}

TEST(TreePages, LinksLeadSomewhere) {
  for (const std::string& file : tree::files({".md"})) {
    for (const std::string& link : broken_links(file, tree::read(tree::root() / file))) ADD_FAILURE() << link;
  }
}

}  // namespace
}  // namespace attnbench
