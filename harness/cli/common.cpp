#include "harness/cli/common.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>

#include "harness/cli/option.h"
#include "harness/cli/usage_error.h"
#include "harness/config/sweep_file.h"
#include "harness/facts/declared_types.h"
#include "harness/results/record.h"

namespace attnbench::cli {

std::string build_text() {
  const RunContext c = describe_run({}, "", {});
  return fmt::format("attnbench {} ({}, {} build)", c.version, c.revision, c.build_type);
}

std::function<std::string(const std::string&)> number_in(double lo, double hi) {
  return [lo, hi](const std::string& text) {
    char* end = nullptr;
    const double x = std::strtod(text.c_str(), &end);
    const bool whole = !text.empty() && *end == '\0';
    return whole && x >= lo && x <= hi
               ? std::string()
               : fmt::format("a number from {:g} to {:g} is required, given '{}'", lo, hi, text);
  };
}

std::string has_a_name(const std::string& text) {
  return text.empty() ? "a name is required, given '' (of a variable that is not set?)" : "";
}

void add_require_option(CLI::App& command, std::vector<std::string>& required) {
  list_option(
      command, "--require", required,
      "Fail attention kernels that declare lower precision: acc=fp32 (accumulators), p=bf16 (P before "
      "P.V), exp_rel_err=2^-11, mma_roundoff=2^-13 and input_roundoff=0 (at most), p_scale=4 (at least). fp32 is more than fp16 "
      "and bf16, which are more than e4m3")
      ->check([](const std::string& item) {
        Required ignored;
        return read_required({item}, ignored);
      });
}

void check_no_input(const std::string& out, const std::vector<std::string>& inputs) {
  namespace fs = std::filesystem;
  for (const std::string& input : inputs) {
    for (const fs::path& read :
         {fs::path(input), fs::path(input) / "results.json", fs::path(input) / "journal.jsonl"}) {
      std::error_code ec;
      if (!fs::is_regular_file(read, ec) || !fs::equivalent(out, read, ec)) continue;
      throw UsageError(
          fmt::format("-o {}: that is one of the results that are read; name another file", out));
    }
  }
}

std::string grouped(int64_t n) {
  std::string s = std::to_string(n);
  for (auto i = static_cast<int64_t>(s.size()) - 3; i > 0; i -= 3) s.insert(static_cast<std::size_t>(i), ",");
  return s;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const auto near = nearest_word(word, candidates);
  return near ? fmt::format("did you mean '{}'? ", *near) : "";
}

}  // namespace attnbench::cli
