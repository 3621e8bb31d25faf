#include "harness/fuzz/corners.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

/// Heads with many group sizes, which fill a tile of rows or do not, and with one KV head or several.
const std::vector<std::string>& heads_menu() {
  static const std::vector<std::string> menu = {
      "1/1",  "2/1",  "3/1",  "4/1",  "5/1",  "7/1",    "8/1",  "9/1",   "2/2",   "3/3",     "6/2",
      "8/2",  "8/4",  "12/4", "8/8",  "5/5",  "6/3",    "16/1", "17/1",  "16/2",  "32/1",    "28/4",
      "24/8", "40/8", "32/8", "64/1", "64/8", "126/14", "71/1", "142/2", "256/8", "257/257", "1024/1"};
  return menu;
}

/// The menu of a key of numbers holds those that its schema allows.
constexpr double kNumbers[] = {0, 0.01, 0.1, 0.25, 0.5, 0.9, 1, 2, 20, 50, -0.25, -1, -20};

double bound(const Json& schema, const char* name, double otherwise) {
  const auto it = schema.find(name);
  return it == schema.end() ? otherwise : it->get<double>();
}

void add_values(const Json& schema, std::vector<std::string>& menu) {
  if (const auto options = schema.find("anyOf"); options != schema.end()) {
    for (const Json& option : *options) add_values(option, menu);
  } else if (const auto words = schema.find("enum"); words != schema.end()) {
    for (const Json& word : *words) menu.push_back(word.get<std::string>());
  } else if (const auto word = schema.find("const"); word != schema.end()) {
    menu.push_back(word->get<std::string>());
  } else if (schema.value("type", "") == "boolean") {
    menu.insert(menu.end(), {"false", "true"});
  } else if (schema.value("type", "") == "integer") {
    const auto lo = schema.at("minimum").get<int64_t>();
    for (const int64_t n : corner_integers(lo, schema.at("maximum").get<int64_t>()))
      menu.push_back(std::to_string(n));
  } else if (schema.value("type", "") == "number") {
    constexpr double kAny = std::numeric_limits<double>::infinity();
    const auto excluded = schema.value("/not/const"_json_pointer, std::numeric_limits<double>::quiet_NaN());
    for (const double x : kNumbers) {
      if (x == excluded) continue;
      if (x < bound(schema, "minimum", -kAny) || x > bound(schema, "maximum", kAny)) continue;
      if (x <= bound(schema, "exclusiveMinimum", -kAny) || x >= bound(schema, "exclusiveMaximum", kAny))
        continue;
      menu.push_back(fmt::format("{}", x));
    }
  }
}

}  // namespace

std::vector<int64_t> corner_integers(int64_t lo, int64_t hi) {
  std::set<int64_t> out = {lo};
  const auto add = [&](int64_t n) {
    for (const int64_t x : {n - 1, n, n + 1}) {
      if (x >= lo && x <= hi && x <= kMostCorner) out.insert(x);
    }
  };
  for (int64_t n = 1; n <= kMostCorner; n *= 2) add(n);
  for (const int64_t n : {48, 80, 96, 176, 192, 320, 576, 1536, 3072}) add(n);  // tile sizes, head_dims
  if (hi <= kMostCorner) out.insert(hi);
  return {out.begin(), out.end()};
}

std::vector<std::string> menu_of(const SweepKey& key) {
  if (key.name == "batch" || key.name == "window") return {};
  if (key.name == "heads") return heads_menu();
  std::vector<std::string> menu;
  add_values(key.schema, menu);
  if (menu.empty())
    throw std::logic_error("fuzz cannot tell from its schema what key " + key.name + " takes");
  return menu;
}

}  // namespace attnbench
