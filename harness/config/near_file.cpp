#include "harness/config/near_file.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <vector>

#include "harness/config/sweep_file.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNames = 10000;  ///< of a folder: a hint is not worth a longer look

/// Callers print errno in the same breath.
struct RestoredErrno {
  int code = errno;
  ~RestoredErrno() { errno = code; }
};

/// The names in a folder, sorted.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end && names.size() < kMostNames;
       it.increment(ec))
    names.push_back(it->path().filename().string());
  std::ranges::sort(names);
  return names;
}

/// The nearest of the names. Endings are compared apart, so that they do not make short names alike: "yml" is near
/// "yaml". Else one that differs in its ending alone.
std::optional<std::string> near_name(const fs::path& name, const std::vector<std::string>& names) {
  std::vector<std::string> near, stems;
  for (const fs::path other : names) {
    const std::string end = other.extension().string();
    if (end != name.extension() && !nearest_word(end, {name.extension().string()})) continue;
    near.push_back(other.string());
    stems.push_back(other.stem().string());
  }
  if (const auto stem = nearest_word(name.stem().string(), stems))
    return near[static_cast<std::size_t>(std::ranges::find(stems, *stem) - stems.begin())];
  const auto same =
      std::ranges::find_if(names, [&](const fs::path& other) { return other.stem() == name.stem(); });
  return same == names.end() ? std::nullopt : std::optional(*same);
}

}  // namespace

std::string near_file(fs::path path, const std::string& ending) {
  const RestoredErrno restored;
  std::error_code ec;
  if (path.empty() || fs::exists(path, ec)) return "";
  if (path.filename().empty()) path = path.parent_path();  // "runs/x/"
  if (!path.has_extension()) path += ending;
  const auto question = [](const fs::path& found) { return "; did you mean '" + found.string() + "'?"; };
  const fs::path folder = path.parent_path(), name = path.filename();
  if (const auto near = near_name(name, names_in(folder.empty() ? "." : folder)))
    return question(folder / *near);
  if (fs::exists(name, ec)) return question(name);
  for (const std::string& sub : names_in(".")) {
    if (sub[0] != '.' && fs::exists(fs::path(sub) / name, ec)) return question(fs::path(sub) / name);
  }
  return "";
}

}  // namespace attnbench
