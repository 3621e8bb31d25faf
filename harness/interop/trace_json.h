// JSON of a trace with its places, so that an error names file, line and field. For flashinfer_trace.cpp only.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/interop/flashinfer_trace.h"
#include "harness/results/text.h"

namespace attnbench::trace {

using Json = nlohmann::ordered_json;

/// A place in a file, for errors.
struct Source {
  std::string file;
  int line = 0;  ///< 0: the file as a whole

  [[noreturn]] void fail(const std::string& field, const std::string& what) const {
    throw TraceError(fmt::format("{}{}: error: field '{}': {}", one_line(file),
                                 line > 0 ? fmt::format(":{}", line) : "", one_line(field), what));
  }
};

/// A JSON value with its place in its file.
class Value {
 public:
  Value(const Source& source, std::string field, const Json& json)
      : source_(&source), field_(std::move(field)), json_(&json) {}

  [[noreturn]] void fail(const std::string& what) const { source_->fail(field_, what); }
  bool has(const char* key) const { return object().contains(key) && !object()[key].is_null(); }
  Value at(const std::string& key) const {
    const std::string field = field_.empty() ? key : field_ + "." + key;
    if (!object().contains(key)) source_->fail(field, "it is missing");
    return {*source_, field, object()[key]};
  }
  const Json& object() const {
    if (!json_->is_object()) fail("an object is required");
    return *json_;
  }
  const std::string& text() const {
    if (!json_->is_string() || json_->get_ref<const std::string&>().empty()) fail("a text is required");
    return json_->get_ref<const std::string&>();
  }
  int64_t count() const {
    if (!json_->is_number_unsigned() || json_->get<uint64_t>() > INT32_MAX) {
      fail(fmt::format("a whole number from 0 to {} is required", INT32_MAX));
    }
    return json_->get<int64_t>();
  }
  double number() const {
    if (!json_->is_number()) fail("a number is required");
    return json_->get<double>();
  }
  std::vector<std::string> texts() const {
    if (!json_->is_array()) fail("a list of texts is required");
    std::vector<std::string> out;
    for (const Json& item : *json_) out.push_back(Value(*source_, field_, item).text());
    return out;
  }

 private:
  const Source* source_;
  std::string field_;
  const Json* json_;
};

inline Json parse_json(const std::string& text, const Source& source) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    throw TraceError(fmt::format("{}{}: error: no valid JSON: {}", one_line(source.file),
                                 source.line > 0 ? fmt::format(":{}", source.line) : "",
                                 shorten_end(one_line(e.what()), 300)));
  }
}

}  // namespace attnbench::trace
