// Strict reading of YAML nodes: every refusal throws ConfigError with the place, the key and what is allowed.
// For harness/config/*.cpp only: yaml-cpp stays inside this folder.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/sweep_file.h"

namespace attnbench {

/// Where a text came from, as errors name it.
struct Source {
  std::string origin;     ///< "configs/ci.yaml", "--case" or "--set block_size=16"
  bool has_lines = true;  ///< false: the origin alone is the place
  std::filesystem::path folder =
      {};  ///< at which relative paths in the text begin; empty: at the current one
};

/// "configs/ci.yaml:12:5", counted from 1.
std::string place_of(const Source& source, const YAML::Mark& mark);

[[noreturn]] void fail_at(const Source& source, const YAML::Mark& mark, const std::string& message);

/// A value and what errors need to say about it.
struct Field {
  std::string key;  ///< the value's key; for an element of a list, the list's key
  YAML::Node node;
  YAML::Mark mark;  ///< place of the value, or of its key if the value is empty
  YAML::Mark key_mark;
  const Source* source = nullptr;  ///< outlives the field

  std::string place() const { return place_of(*source, mark); }

  /// Throws "place: error: key 'block_size': problem".
  [[noreturn]] void fail(const std::string& problem) const;

  /// Throws "... got '16abc', expected an integer from 1 to 65536".
  [[noreturn]] void fail_expected(const std::string& expected) const;
};

/// The one document of `text`, whose root is a mapping. Errors: syntax, no document, several, another root.
Field load_mapping(const std::string& text, const Source& source);

/// The one document of `text`, with any root. `key` is the key that the result has in errors.
Field load_value(const std::string& text, const std::string& key, const Source& source);

/// Entries of a mapping in file order, merge keys (<<) resolved: a mapping's own keys win. `where` names the
/// mapping in errors: "sweep 'decode'". Errors: no mapping, a key that is not a word, a key given twice.
std::vector<Field> entries_of(const Field& mapping, const std::string& where);

/// The entry of that key, or null.
const Field* find_entry(const std::vector<Field>& entries, std::string_view key);

/// Elements of a list. Errors: no list, an empty list.
std::vector<Field> items_of(const Field& list);

/// Refuses an entry whose key is not one of `allowed`; `hint` is appended.
[[noreturn]] void fail_unknown_key(const Field& entry, const std::string& where,
                                   const std::vector<std::string>& allowed, const std::string& hint = "");

/// "; did you mean 'causal'? allowed: none, causal", without the question if no word is near.
std::string suggest(std::string_view word, const std::vector<std::string>& allowed);

/// Decimal digits with an optional '-', no other spelling: leading zeros, '+', hexadecimal and quotes are
/// refused, since YAML versions disagree about them.
int64_t read_integer(const Field& field, int64_t lo, int64_t hi);
uint64_t read_unsigned(const Field& field);

/// A number of tokens: an integer as above, or digits with a suffix, k (1024) or m (1024^2). "4k" and '4k' are
/// one text to YAML, so quotes are no matter there.
int64_t read_length(const Field& field, int64_t lo, int64_t hi);

/// The number that digits with an optional '-' and an optional suffix k or m stand for; nullopt for all else
/// and where 64 bits do not hold it.
std::optional<int64_t> parse_length(std::string_view text);

/// What `text` must match to have a suffix, in the words of JSON Schema.
inline constexpr const char* kSuffixedLength = "[1-9][0-9]*[km]";

/// A finite decimal number, or nullopt where the value is not one.
std::optional<double> read_number(const Field& field);
bool read_bool(const Field& field);

/// A non-empty scalar. Errors: an unquoted number, truth value or null.
std::string read_string(const Field& field);

/// Whether the value is one that read_length takes, bounds aside.
bool is_length(const Field& field);

/// Whether the value is an unquoted scalar that reads as an integer.
bool is_plain_integer(const Field& field);

}  // namespace attnbench
