// Results files and journals: any text is read, or refused with the path. Numbers that were read are finite.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "harness/results/load.h"
#include "tests/fuzz/require.h"

namespace {

void read(const std::string& text, const std::string& path) {
  using namespace attnbench;
  try {
    const ResultSet set = parse_results(text, path);
    for (const Record& r : set.results) {
      fuzz::require(!r.median_us() || std::isfinite(*r.median_us()), "a median is finite");
      for (const double sample : r.samples_us()) fuzz::require(std::isfinite(sample), "a sample is finite");
    }
  } catch (const ResultsError& e) {
    fuzz::require(std::string(e.what()).find(path) == 0, "an error begins with the path");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text, "fuzz.json");
  read(text, "fuzz.jsonl");
  return 0;
}
