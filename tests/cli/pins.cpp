#include "tests/cli/pins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

#ifdef __clang__
constexpr bool kPinnedHere = false;  // it contracts other sums than GCC, which made the pins
#else
constexpr bool kPinnedHere = !kSanitized;
#endif

}  // namespace

void expect_pinned(const std::string& name, std::vector<std::string> lines, std::optional<double> mean) {
  if (!kPinnedHere) return;
  std::sort(lines.begin(), lines.end());
  uint64_t digest = 0xcbf29ce484222325u;  // FNV-1a
  std::string text;
  for (const std::string& l : lines) text += l + "\n";
  for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::ostringstream line;
  line << name << " " << lines.size() << " " << std::hex << std::setw(16) << std::setfill('0') << digest;
  const std::string now = line.str();
  std::istringstream pins(read_text(source_path("tests/cli/pins.txt")));
  for (std::string pin; std::getline(pins, pin);) {
    if (!pin.starts_with(now)) continue;
    const double before = std::stod(pin.substr(now.size()));
    if (!mean || std::abs(*mean - before) <= 0.02 * before) return;
  }
  const auto folder = std::filesystem::path(ATTNBENCH_SCRATCH_DIR).parent_path() / "pins";
  std::string file = name;
  std::replace(file.begin(), file.end(), '/', '_');
  std::filesystem::create_directories(folder);
  std::ofstream(folder / file) << text;
  ADD_FAILURE() << "not what tests/cli/pins.txt pins; the lines are in " << (folder / file)
                << "; if the change is meant:\npin: " << now << " " << mean.value_or(0);
}

}  // namespace attnbench::testing
