// One list of fields for both directions: json.cpp names the fields of each struct once, in `describe`, and
// this class writes or reads them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "harness/config/json_number.h"
#include "harness/error.h"
#include "harness/results/record.h"

namespace attnbench {

/// The names of an enumeration's values, in their order.
inline std::span<const char* const> names_of(Status) { return kStatusNames; }
inline std::span<const char* const> names_of(CacheMode) { return kCacheModeNames; }
inline std::span<const char* const> names_of(TimeClock) { return kClockNames; }
inline std::span<const char* const> names_of(InvariantResult::Outcome) { return kOutcomeNames; }
inline std::span<const char* const> names_of(DType) { return kDTypeNames; }
inline std::span<const char* const> names_of(DeviceKind) { return kDeviceKindNames; }

/// The fields of one JSON object. Reading throws Error, which names the field that is missing or has a wrong
/// type.
class Fields {
 public:
  using Json = nlohmann::ordered_json;

  /// `of`: the record that the fields belong to; nullptr for parts of a context.
  Fields(Json& out, const Record* of) : record(of), out_(&out) {}
  /// `whole`: every field must be there. Otherwise absent ones, and null, leave their defaults.
  Fields(const Json& in, const Record* of, bool whole) : record(of), in_(&in), whole_(whole) {}

  const Record* record;
  bool writes() const { return out_ != nullptr; }
  bool has(const char* key) const { return in_ != nullptr && in_->contains(key); }

  template <class T>
  void operator()(const char* key, T& value) {
    if (writes()) {
      (*out_)[key] = written(value);
    } else if (const Json* j = member(key); j && (whole_ || std::is_same_v<T, double> || !j->is_null())) {
      read(*j, key, value);
    }
  }

  /// A field that is absent unless it is known.
  template <class T>
  void if_known(bool known, const char* key, T& value) {
    if (writes() ? known : has(key)) (*this)(key, value);
  }

  /// A field with another value in JSON unless it is known.
  template <class T>
  void or_else(const Json& unknown, bool known, const char* key, T& value) {
    if (writes()) {
      (*out_)[key] = known ? written(value) : unknown;
    } else if (const Json* j = member(key); j != nullptr && *j != unknown) {
      read(*j, key, value);
    }
  }

  /// A part whose fields stand among the others; all are null without it.
  template <class T>
  void spread(std::optional<T>& part) {
    T value = part.value_or(T{});
    const Json members = written(value);
    for (const auto& [key, json] : members.items()) {
      if (writes()) {
        (*out_)[key] = part ? json : Json(nullptr);
      } else if (const auto it = in_->find(key); it != in_->end() && !it->is_null()) {
        return describe(*this, part.emplace());
      }
    }
  }

  /// What follows from other fields is not read.
  void derived(const char* key, const Json& value) {
    if (writes()) (*out_)[key] = value;
  }

  [[noreturn]] static void wrong(const std::string& key, const std::string& wanted) {
    throw Error(fmt::format("'{}' is not {}", key, wanted));
  }

  template <class T>
  Json written(T& value) const {
    if constexpr (std::is_same_v<T, double>) {
      return finite_or_null(value);
    } else if constexpr (std::is_enum_v<T>) {
      return names_of(value)[static_cast<std::size_t>(value)];
    } else if constexpr (requires { value.has_value(); }) {
      return value ? written(*value) : Json(nullptr);
    } else if constexpr (requires { value.front().first; }) {  // a mapping
      Json j = Json::object();
      for (auto& [key, of] : value) j[written(key).template get<std::string>()] = written(of);
      return j;
    } else if constexpr (requires { value.emplace_back(); }) {
      Json j = Json::array();
      for (auto& element : value) j.push_back(written(element));
      return j;
    } else if constexpr (requires(Fields f) { describe(f, value); }) {
      Json j = Json::object();
      Fields f(j, record);
      describe(f, value);
      return j;
    } else {
      return value;
    }
  }

  template <class T>
  void read(const Json& j, const std::string& key, T& value) const {
    if constexpr (std::is_same_v<T, std::string>) {
      if (!j.is_string()) wrong(key, "a string");
      value = j.get<std::string>();
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!j.is_boolean()) wrong(key, "true or false");
      value = j.get<bool>();
    } else if constexpr (std::integral<T>) {
      if (!j.is_number_integer()) wrong(key, "an integer");
      const bool fits =
          j.is_number_unsigned() ? std::in_range<T>(j.get<uint64_t>()) : std::in_range<T>(j.get<int64_t>());
      if (!fits) wrong(key, "an integer of its range");
      value = j.get<T>();
    } else if constexpr (std::is_same_v<T, double>) {  // null: it was not finite
      if (!j.is_number() && !j.is_null()) wrong(key, "a number");
      value = j.is_null() ? std::numeric_limits<double>::quiet_NaN() : j.get<double>();
    } else if constexpr (std::is_enum_v<T>) {
      std::string text;
      read(j, key, text);
      const std::span<const char* const> names = names_of(value);
      const auto found = std::ranges::find(names, text);
      value = static_cast<T>(found - names.begin());
      if (found != names.end()) return;
      throw Error(fmt::format("{} '{}' is not one of {}", key, text, fmt::join(names, ", ")));
    } else if constexpr (requires { value.has_value(); }) {
      value.reset();
      if (!j.is_null()) read(j, key, value.emplace());
    } else if constexpr (requires { value.front().first; }) {
      if (!j.is_object()) wrong(key, "a mapping");
      value.clear();
      for (const auto& [name, of] : j.items()) {
        auto& pair = value.emplace_back();
        read(Json(name), key, pair.first);
        read(of, key, pair.second);
      }
    } else if constexpr (requires { value.emplace_back(); }) {
      if (!j.is_array()) wrong(key, "a list");
      value.clear();
      for (const Json& element : j) read(element, key + "[]", value.emplace_back());
    } else {
      if (!j.is_object()) wrong(key, "a mapping");
      Fields f(j, record, whole_);
      describe(f, value);
    }
  }

 private:
  /// nullptr if it is absent and need not be there.
  const Json* member(const char* key) const {
    const auto it = in_->find(key);
    if (it != in_->end()) return &*it;
    if (whole_) throw Error(fmt::format("'{}' is missing", key));
    return nullptr;
  }

  Json* out_ = nullptr;
  const Json* in_ = nullptr;
  bool whole_ = true;
};

}  // namespace attnbench
