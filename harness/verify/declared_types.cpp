#include "harness/verify/declared_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace attnbench {
namespace {

/// What a requirement may name.
constexpr std::array kTypes = {DType::kFp32, DType::kFp16, DType::kBf16, DType::kE4m3};

int rank(DType t) { return static_cast<int>(dtype_size(t)); }

}  // namespace

std::string waived_text(uint32_t flags) {
  std::string text;
  for (const Waiver& w : kWaivers) {
    if ((flags & w.flag) != 0) text += std::string(", ") + w.text;
  }
  return text;
}

std::string types_text(const DeclaredTypes& types) {
  return fmt::format("acc {}, p {}{}", dtype_name(types.acc), dtype_name(types.p), waived_text(types.waived));
}

std::string read_required(const std::vector<std::string>& items, RequiredTypes& required) {
  for (const std::string& item : items) {
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string key = item.substr(0, equals);
    const std::string value = item.substr(std::min(equals + 1, item.size()));
    if (key != "acc" && key != "p") {
      return fmt::format("'{}' is not known: give acc=TYPE (accumulators), p=TYPE (P before P.V), or both",
                         item);
    }
    const auto type =
        std::find_if(kTypes.begin(), kTypes.end(), [&](DType t) { return value == dtype_name(t); });
    if (type == kTypes.end()) {
      return fmt::format("{}: '{}' is not a type of {}: give fp32, fp16, bf16 or e4m3", item, value, key);
    }
    (key == "p" ? required.p : required.acc) = *type;
  }
  return "";
}

std::optional<std::string> lacks(const RequiredTypes& required, const DeclaredTypes& declared) {
  std::string text;
  const auto look = [&](const std::optional<DType>& wanted, DType given, const char* key, const char* what) {
    if (!wanted || rank(given) >= rank(*wanted)) return;
    text += fmt::format("{}{} in {}, and --require asks for {}={}", text.empty() ? "" : "; ", what,
                        dtype_name(given), key, dtype_name(*wanted));
  };
  look(required.acc, declared.acc, "acc", "sums");
  look(required.p, declared.p, "p", "P");
  if (text.empty()) return std::nullopt;
  return "the kernel declares " + text;
}

}  // namespace attnbench
