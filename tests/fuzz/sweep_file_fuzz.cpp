// Sweep files: any text is read, or refused as "FILE:LINE:COLUMN: error: ...". Each case of a small sweep
// stays the same when its one-line form is read back.
#include <cstddef>
#include <cstdint>
#include <string>

#include "harness/cases/case.h"
#include "harness/serving/trace_lines.h"
#include "tests/fuzz/require.h"

namespace {

/// Number of cases that the axes give; stops counting at 1,000.
int64_t case_count(const attnbench::SweepFile& file) {
  int64_t total = 0;
  for (const auto& sweep : file.sweeps) {
    int64_t cases = 1;
    for (const auto& axis : sweep.axes) {
      cases *= static_cast<int64_t>(axis.points.size());
      if (cases > 1000) return cases;
    }
    total += cases;
  }
  return total;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace attnbench;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const SweepFile file = parse_sweep_text(text, "fuzz.yaml");
    if (case_count(file) > 1000) return 0;
    for (const Case& c : expand(file).cases) {
      if (c.params.seqs.size() > 1000) continue;
      const Expansion again = expand(parse_inline_case(case_yaml(c.params)));
      fuzz::require(again.cases.size() == 1 && again.cases[0].id == c.id,
                    "the one-line form of a case is that case");
    }
  } catch (const ConfigError& e) {
    const std::string what = e.what();
    fuzz::require(what.find("error: ") != std::string::npos, "an error says so");
    fuzz::require(what.find("fuzz.yaml") == 0, "an error begins with the file");
  } catch (const BadTraceError& e) {
    fuzz::require(std::string(e.what()).find("named in fuzz.yaml") != std::string::npos,
                  "an error in a trace says which file names it");
  }
  return 0;
}
