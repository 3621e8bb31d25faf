// A parsed and checked configuration file, before its axes are multiplied out.
//
// Parsing is strict: an unknown key, a wrong type or an impossible value throws ConfigError, whose text is
// "file:line:column: error: ..." with what is allowed and the nearest valid key. Nothing runs from a file
// with an error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/case_params.h"
#include "harness/error.h"

namespace attnbench {

class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& what) : ConfigError(std::vector{what}) {}  // `what` names the place
  /// Several mistakes, each with its place; one at least.
  explicit ConfigError(const std::vector<std::string>& mistakes);

  /// What what() holds on lines of its own. A mistake may quote a file, new lines included.
  const std::vector<std::string>& mistakes() const { return mistakes_; }

 private:
  std::vector<std::string> mistakes_;
};

/// One value of one key: what it was called in the file, and what it does to a case.
struct Setting {
  std::string key;                         ///< "block_size"
  std::string text;                        ///< the value as written, canonical: "16"
  std::function<void(CaseParams&)> apply;  ///< sets the case's field(s)
  std::string place;                       ///< "configs/ci.yaml:12:5"
  std::string mapping = "";  ///< the value as a flow mapping, where it is one: "{lengths: 16, count: 4}"
  bool own = false;          ///< stands in the sweep itself, not in defaults or --set
};

/// Points of an axis: each point sets one key (a plain list) or several (zip).
struct Axis {
  std::vector<std::vector<Setting>> points;
};

/// A condition of `exclude`: a case is dropped when all of its settings equal the case's.
struct Exclusion {
  std::vector<std::vector<Setting>> any_of_each;  ///< per key: the values that match
};

/// Which rows of a sweep's axes are cases: all of them, a cover or a sample.
struct SweepCover {
  /// Values per tuple: every legal tuple meets in some case. `pairwise`: 2, `3`: 3, no cover: 0.
  std::size_t strength = 0;
  int64_t sample = 0;  ///< `{sample: N}`: N legal cases are drawn; 0: no sample
  bool is_product() const { return strength == 0 && sample == 0; }
};

/// Most cases of a sample.
inline constexpr int64_t kMaxSample = 1'000'000;

struct Sweep {
  std::string name;
  std::vector<Setting> fixed;  ///< defaults first, then the sweep's own scalars
  std::vector<Axis> axes;      ///< in file order; the last varies fastest
  std::vector<Exclusion> exclude;
  SweepCover cover;
  std::string place;
  bool overridden = false;  ///< by --set, which may contradict other keys of some cases: these are left out
};

struct SweepFile {
  std::string path;
  std::string name;
  std::optional<uint64_t> seed;
  std::vector<std::string> check;  ///< default of --check; empty: none given
  std::vector<Sweep> sweeps;
};

/// What is wrong with the words of `check` or --check, or nullopt. At most one of full, sampled and off is
/// legal; invariants may stand alone or beside full or sampled.
std::optional<std::string> wrong_check(const std::vector<std::string>& words);

/// Reads a file. `overrides` are "key=value" strings of --set (value is YAML: "16", "[16, 64]", "4q512");
/// each replaces the key in every sweep, and is applied before axes multiply. `seed` overrides the file's,
/// because distributions of lengths draw from it. Errors: ConfigError.
SweepFile load_sweep_file(const std::string& path, const std::vector<std::string>& overrides = {},
                          std::optional<uint64_t> seed = std::nullopt);

/// The same from a string; `origin` stands for the path in errors, and relative paths in the text begin at its folder.
SweepFile parse_sweep_text(const std::string& text, const std::string& origin,
                           const std::vector<std::string>& overrides = {},
                           std::optional<uint64_t> seed = std::nullopt);

/// `run --case '{...}'`: one flow mapping with the keys of a sweep becomes a file with one sweep.
SweepFile parse_inline_case(const std::string& mapping, const std::vector<std::string>& overrides = {},
                            std::optional<uint64_t> seed = std::nullopt);

/// "Did you mean": the nearest candidate within edit distance 1 + length / 4 of `word`, ignoring case, or
/// nullopt. The first of equally near ones wins; one that other programs call `word` goes before all.
std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& candidates);

/// The candidate that other programs call `word`, as it is written: "heads: 32/8" for num_kv_heads.
std::optional<std::string> word_of_others(std::string_view word, const std::vector<std::string>& candidates);

/// The JSON Schema (draft 2020-12) of the format, made from the same key table as the parser.
std::string json_schema();

}  // namespace attnbench
