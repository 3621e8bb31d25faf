#include "harness/config/trace_path.h"

#include <fmt/format.h>
#include <yaml-cpp/emitter.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "harness/config/near_file.h"
#include "harness/plain_file.h"

namespace attnbench {
namespace {

constexpr std::size_t kLongestName = 40;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_of_ids(char c) { return is_letter(c) || (c >= '0' && c <= '9'); }

}  // namespace

std::string read_trace_path(const Field& field) {
  const std::filesystem::path named = read_string(field);
  std::string path = (field.source->folder / named).lexically_normal().string();
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_regular_file(status)) return path;
  if (error) {
    field.fail(
        fmt::format("cannot read {}: {}; a relative path begins at the folder of the sweep file, and with "
                    "--case and --set at the current folder{}",
                    path, error.message(), near_file(path)));
  }
  field.fail(fmt::format("{}: {} (attnbench trace --help)", path, why_no_file(path, "the file of a trace")));
}

std::string trace_name(const std::string& path) {
  std::string name;
  const std::filesystem::path file(path);
  for (const char c : (file.extension() == ".gz" ? file.stem() : file).stem().string()) {
    if (is_of_ids(c)) {
      name += c;
    } else if (!name.ends_with('_')) {
      name += '_';
    }
  }
  return name.substr(0, kLongestName);
}

std::string trace_path_text(const std::string& path) {
  const bool is_safe = std::ranges::all_of(
      path, [](char c) { return is_of_ids(c) || c == '_' || c == '-' || c == '.' || c == '/'; });
  // Such a text is no number, no truth value and no null.
  const bool is_text =
      path.find('/') != path.npos || (is_letter(path.front()) && path.find('.') != path.npos);
  if (is_safe && is_text && path.front() != '-') return path;
  YAML::Emitter out;
  out << YAML::DoubleQuoted << path;
  return out.c_str();
}

}  // namespace attnbench
