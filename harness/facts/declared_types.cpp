#include "harness/facts/declared_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

namespace attnbench {
namespace {

/// What a requirement may name.
constexpr std::array kTypes = {DType::kFp32, DType::kFp16, DType::kBf16, DType::kE4m3};

constexpr Numerics kExact = Declared().numerics;

int rank(DType t) { return static_cast<int>(dtype_size(t)); }

/// "2^-11" for powers of two below 1.
std::string power_text(double x) {
  int exponent = 0;
  return x < 1 && std::frexp(x, &exponent) == 0.5 ? fmt::format("2^{}", exponent - 1)
                                                  : fmt::format("{:.3g}", x);
}

/// Reads "2^-11", "0x1p-11" or "5e-4"; NaN if it is no number.
double parsed_number(const std::string& text) {
  const bool power = text.starts_with("2^");
  const char* begin = text.c_str() + (power ? 2 : 0);
  char* end = nullptr;
  const double x = std::strtod(begin, &end);
  return end == begin || *end != '\0' ? NAN : power ? std::exp2(x) : x;
}

}  // namespace

std::string waived_text(uint32_t flags) {
  std::string text;
  for (const Waiver& w : kWaivers) {
    if ((flags & w.flag) != 0) text += std::string(", ") + w.text;
  }
  return text;
}

std::string types_text(const Declared& declared) {
  const Numerics& n = declared.numerics;
  std::string text = fmt::format("acc {}, p {}", dtype_name(n.acc_type), dtype_name(n.p_type));
  for (const DeclaredNumber& d : kDeclaredNumbers) {
    const double x = n.*d.field;
    if (x != kExact.*d.field) text += fmt::format(", {} {}", d.key, power_text(x));
  }
  if (n.head_grad_type != kExact.head_grad_type)
    text += fmt::format(", head_grads {}", dtype_name(n.head_grad_type));
  return text + waived_text(declared.waived);
}

std::string read_required(const std::vector<std::string>& items, Required& required) {
  for (const std::string& item : items) {
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string key = item.substr(0, equals);
    const std::string value = item.substr(std::min(equals + 1, item.size()));
    const auto number =
        std::ranges::find_if(kDeclaredNumbers, [&](const DeclaredNumber& d) { return key == d.key; });
    if (number != kDeclaredNumbers.end()) {
      const double x = parsed_number(value);
      if (!(x >= 0))
        return fmt::format("{}: '{}' is not a number from 0 on, such as 2^-11 or 5e-4", item, value);
      required.numbers[static_cast<std::size_t>(number - kDeclaredNumbers.begin())] = x;
      required.any = true;
      continue;
    }
    if (key != "acc" && key != "p") {
      return fmt::format(
          "'{}' is not known: give acc=TYPE (accumulators), p=TYPE (P before P.V), or exp_rel_err, mma_roundoff, "
          "input_roundoff or p_scale with a number",
          item);
    }
    const auto type = std::ranges::find_if(kTypes, [&](DType t) { return value == dtype_name(t); });
    if (type == kTypes.end()) {
      return fmt::format("{}: '{}' is not a type of {}: give fp32, fp16, bf16 or e4m3", item, value, key);
    }
    (key == "p" ? required.p : required.acc) = *type;
    required.any = true;
  }
  return "";
}

std::optional<std::string> lacks(const Required& required, const Numerics& declared) {
  std::string text;
  const auto look = [&](const std::optional<DType>& wanted, DType given, const char* key, const char* what) {
    if (!wanted || rank(given) >= rank(*wanted)) return;
    text += fmt::format("{}{} in {}, and --require asks for {}={}", text.empty() ? "" : "; ", what,
                        dtype_name(given), key, dtype_name(*wanted));
  };
  look(required.acc, declared.acc_type, "acc", "sums");
  look(required.p, declared.p_type, "p", "P");
  for (std::size_t i = 0; i < kDeclaredNumbers.size(); ++i) {
    const DeclaredNumber& d = kDeclaredNumbers[i];
    const double given = declared.*d.field, wanted = required.numbers[i].value_or(given);
    if (d.is_error ? given <= wanted : given >= wanted) continue;
    text += fmt::format("{}{} {}, and --require asks for {} at {}", text.empty() ? "" : "; ", d.key,
                        power_text(given), power_text(wanted), d.is_error ? "most" : "least");
  }
  if (text.empty()) return std::nullopt;
  return "the kernel declares " + text;
}

}  // namespace attnbench
