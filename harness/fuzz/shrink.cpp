#include "harness/fuzz/shrink.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace attnbench {
namespace {

std::optional<int64_t> integer(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}

/// Values below n to try: 0 and 1, shares of n, and n - 1.
std::vector<int64_t> below(int64_t n) {
  std::vector<int64_t> out;
  for (const int64_t x : {int64_t{0}, int64_t{1}, n / 8, n / 2, n - n / 4, n - n / 16, n - 1}) {
    if (x >= 0 && x < n && std::ranges::find(out, x) == out.end()) out.push_back(x);
  }
  return out;
}

/// Values of `heads` ("8/2") with fewer heads, in the same group size and in smaller ones.
std::vector<std::string> smaller_heads(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto q = integer(text.substr(0, slash));
  const auto kv = slash == text.npos ? q : integer(text.substr(slash + 1));
  std::vector<std::string> out;
  if (!q || !kv || *kv < 1) return out;
  const int64_t group = *q / *kv;
  for (const auto& [g, n] : {std::pair{int64_t{1}, int64_t{1}}, std::pair{group, int64_t{1}},
                             std::pair{int64_t{1}, *kv}, std::pair{group, *kv / 2}, std::pair{group / 2, *kv},
                             std::pair{group, *kv - 1}, std::pair{group - 1, *kv}}) {
    if (g >= 1 && n >= 1 && g <= group && n <= *kv && g * n < *q)
      out.push_back(fmt::format("{}/{}", g * n, n));
  }
  return out;
}

std::vector<std::string> smaller_window(std::string_view text) {
  const std::size_t comma = text.find(',');
  if (comma == text.npos) return {};
  const auto left = integer(text.substr(0, comma)), right = integer(text.substr(comma + 1));
  std::vector<std::string> out;
  if (!left || !right) return out;
  if (*right != 0) out.push_back(fmt::format("{},0", *left));
  for (const int64_t l : below(*left)) out.push_back(fmt::format("{},{}", l, *right));
  for (const int64_t r : below(*right)) out.push_back(fmt::format("{},{}", *left, r));
  return out;
}

/// Smaller values of a key; none if the value is a word.
std::vector<std::string> smaller(const std::string& key, const std::string& value) {
  if (key == "heads") return smaller_heads(value);
  if (key == "window") return smaller_window(value);
  if (value == "causal_top_left") return {"causal"};
  std::vector<std::string> out;
  if (const auto n = integer(value)) {
    if (key == "head_dim" && *n > 64) out.push_back("64");  // most kernels take 64
    for (const int64_t x : below(*n)) out.push_back(std::to_string(x));
  }
  return out;
}

/// Keys with large defaults: a draft without them is a larger case.
bool is_size(const std::string& key) { return key == "heads" || key == "head_dim"; }

class Shrinker {
 public:
  Shrinker(Draft draft, int most_tries, const std::function<bool(const Draft&)>& fails)
      : best_(std::move(draft)), left_(most_tries), fails_(fails) {}

  Draft run() {
    for (bool changed = true; changed && left_ > 0;) {
      changed = drop_sequences();
      changed = drop_keys() || changed;
      changed = shorten_all() || changed;
      changed = lower_values() || changed;
      changed = shorten_each() || changed;
    }
    return best_;
  }
  int left() const { return left_; }

 private:
  bool take(Draft draft) {
    if (left_ <= 0 || draft == best_) return false;
    --left_;
    if (!fails_(draft)) return false;
    best_ = std::move(draft);
    return true;
  }

  /// Leaves out half of the sequences, a quarter, ... and single ones.
  bool drop_sequences() {
    bool changed = false;
    for (std::size_t part = (best_.seqs.size() + 1) / 2; part > 0; part = part == 1 ? 0 : (part + 1) / 2) {
      for (std::size_t begin = 0; begin < best_.seqs.size() && best_.seqs.size() > 1;) {
        Draft d = best_;
        const auto from = d.seqs.begin() + static_cast<std::ptrdiff_t>(begin);
        d.seqs.erase(from, from + static_cast<std::ptrdiff_t>(std::min(part, d.seqs.size() - begin)));
        const bool taken = !d.seqs.empty() && take(std::move(d));
        changed = changed || taken;
        if (!taken) begin += part;
      }
    }
    return changed;
  }

  bool drop_keys() {
    bool changed = false;
    const auto keys = best_.values;
    for (const auto& [key, value] : keys) {
      if (key == "op" || is_size(key)) continue;
      Draft d = best_;
      d.values.erase(key);
      changed = take(std::move(d)) || changed;
    }
    return changed;
  }

  /// Shortens all sequences at once, so that equal lengths stay equal.
  bool shorten_all() {
    bool changed = false;
    const auto each = [&](auto&& change) {
      for (bool again = true; again;) {
        Draft d = best_;
        for (SeqLen& s : d.seqs) change(s);
        again = take(std::move(d));
        changed = changed || again;
      }
    };
    each([](SeqLen& s) { s = {s.q / 2, s.k / 2}; });
    for (const int32_t part : {4, 16, 1 << 30}) changed = lower_keys(part) || changed;
    each([](SeqLen& s) { s.q = std::min(s.q, 1); });
    each([](SeqLen& s) { s.q = s.q / 2; });
    return changed;
  }

  /// Takes the same number of keys off each sequence: the longest length over `part`, at least 1.
  bool lower_keys(int32_t part) {
    bool changed = false;
    for (bool again = true; again;) {
      Draft d = best_;
      int32_t longest = 0;
      for (const SeqLen& s : d.seqs) longest = std::max(longest, s.k);
      const int32_t less = std::max(1, longest / part);
      for (SeqLen& s : d.seqs) s.k = std::max(0, s.k - less);
      again = take(std::move(d));
      changed = changed || again;
    }
    return changed;
  }

  bool lower_values() {
    bool changed = false;
    const auto values = best_.values;
    for (const auto& [key, before] : values) {
      for (bool again = true; again;) {
        again = false;
        const auto now = best_.values.find(key);
        if (now == best_.values.end()) break;
        for (const std::string& value : smaller(key, now->second)) {
          Draft d = best_;
          d.values[key] = value;
          again = take(std::move(d));
          if (again) break;
        }
        changed = changed || again;
      }
    }
    // Sizes that are at their large defaults.
    for (const auto& [key, value] : {std::pair{"heads", "1/1"}, std::pair{"head_dim", "64"}}) {
      if (best_.values.count(key)) continue;
      Draft d = best_;
      d.values[key] = value;
      changed = take(std::move(d)) || changed;
    }
    return changed;
  }

  bool shorten_each() {
    bool changed = false;
    for (std::size_t b = 0; b < best_.seqs.size(); ++b) {
      for (int32_t SeqLen::*length : {&SeqLen::q, &SeqLen::k}) {
        for (bool again = true; again;) {
          again = false;
          for (const int64_t n : below(best_.seqs[b].*length)) {
            Draft d = best_;
            d.seqs[b].*length = static_cast<int32_t>(n);
            again = take(std::move(d));
            if (again) break;
          }
          changed = changed || again;
        }
      }
    }
    return changed;
  }

  Draft best_;
  int left_;
  const std::function<bool(const Draft&)>& fails_;
};

}  // namespace

Shrunk shrink(Draft draft, int most_tries, const std::function<bool(const Draft&)>& fails) {
  Shrinker shrinker(std::move(draft), most_tries, fails);
  Draft smallest = shrinker.run();
  return {std::move(smallest), most_tries - shrinker.left()};
}

}  // namespace attnbench
