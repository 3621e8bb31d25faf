// The kinds of rows of the key table. For its rows (keys.cpp, key_rows_*.cpp) and key_kinds.cpp only.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/config/keys.h"
#include "harness/config/yaml_read.h"

namespace attnbench {

inline constexpr int32_t kMaxHeads = 1024;
inline constexpr int32_t kMaxHeadDim = 576;
inline constexpr int32_t kMaxHeadDimV = 512;
inline constexpr int32_t kMaxRotaryDim = 256;

/// Starts a row for one field: sets name, doc, reset and is_default, and leaves the rest to the caller.
template <class T>
SweepKey field_key(std::string name, std::string doc, T CaseParams::*member) {
  SweepKey key;
  key.name = std::move(name);
  key.doc = std::move(doc);
  key.reset = [member, value = CaseParams{}.*member](CaseParams& p) { p.*member = value; };
  key.is_default = [member, value = CaseParams{}.*member](SweepKey::Params p) { return p.*member == value; };
  return key;
}

/// A key whose values are words; each word stands for one value of the field. Records hold the word.
template <class T>
SweepKey word_key(std::string name, std::string doc, T CaseParams::*member,
                  std::vector<std::pair<std::string, T>> words) {
  SweepKey key = field_key(std::move(name), std::move(doc), member);
  std::vector<std::string> names;
  for (const auto& [word, value] : words) names.push_back(word);
  key.schema = {{"enum", names}};
  key.read = [=](const Field& field, uint64_t) -> KeyValue {
    if (!field.node.IsScalar()) field.fail_expected(fmt::format("one of: {}", fmt::join(names, ", ")));
    const std::string& text = field.node.Scalar();
    for (const auto& [word, value] : words) {
      if (text == word) return {word, [member, v = value](CaseParams& p) { p.*member = v; }};
    }
    field.fail(fmt::format("unknown value '{}'{}", text.substr(0, 60), suggest(text, names)));
  };
  key.text = [member, words](const CaseParams& p) -> std::string {
    for (const auto& [word, value] : words) {
      if (p.*member == value) return word;
    }
    return "?";  // no field holds a value without a word
  };
  key.report = [name = key.name, text = key.text](SweepKey::Json& j, const CaseParams& p) {
    j[name] = text(p);
  };
  return key;
}

/// A key whose words are those of the enumeration's first values.
template <class T>
SweepKey word_key(std::string name, std::string doc, T CaseParams::*member,
                  std::span<const char* const> names) {
  std::vector<std::pair<std::string, T>> words;
  for (const char* word : names) words.emplace_back(word, static_cast<T>(words.size()));
  return word_key(std::move(name), std::move(doc), member, std::move(words));
}

/// Pairs each of `values` with its word, which the enumeration's name function gives.
template <class T>
std::vector<std::pair<std::string, T>> words_of(const char* (*name)(T), std::initializer_list<T> values) {
  std::vector<std::pair<std::string, T>> words;
  for (const T value : values) words.emplace_back(name(value), value);
  return words;
}

SweepKey integer_key(std::string name, std::string doc, int32_t CaseParams::*member, int32_t lo, int32_t hi);
/// An integer that counts tokens, which may have a suffix: 4k, 1m.
SweepKey tokens_key(std::string name, std::string doc, int32_t CaseParams::*member, int32_t lo, int32_t hi);
SweepKey bool_key(std::string name, std::string doc, bool CaseParams::*member);

/// A key whose value is a number. Three arguments say which numbers are legal: `is_legal` to the parser,
/// `expected` in error messages, `schema` in the JSON Schema.
SweepKey number_key(std::string name, std::string doc, double CaseParams::*member, bool (*is_legal)(double),
                    const std::string& expected, SweepKey::Json schema);

// Keys whose values have a form of their own.
SweepKey heads_key();
SweepKey window_key();
SweepKey softmax_scale_key();
SweepKey head_dim_v_key();
SweepKey batch_key();

/// Whether x is positive and finite as a float. Kernels take numbers as float, and a value that became 0 or
/// infinite there would mean something else.
bool is_positive_float(double x);

}  // namespace attnbench
