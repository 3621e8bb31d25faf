// Finds the trait that separates wrong things from right ones.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace attnbench {

/// A property that things may have. `text` ends a sentence about several things: "are causal".
template <typename T>
struct Trait {
  std::string text;
  std::function<bool(const T&)> has;
};

/// Names the trait that all wrong things and fewest right things have, the first of equals: "all wrong rows,
/// and 2 of 40 right ones, are causal". Empty if more than a tenth of the right things have it, or if nothing
/// is right.
template <typename T>
std::string telling_trait(const std::vector<Trait<T>>& traits, std::span<const T> things, const char* noun,
                          const std::function<bool(const T&)>& is_wrong) {
  const auto all_right =
      static_cast<std::size_t>(std::ranges::count_if(things, [&](const T& t) { return !is_wrong(t); }));
  const Trait<T>* best = nullptr;
  std::size_t best_right = all_right / 10 + 1;
  for (const Trait<T>& trait : traits) {
    std::size_t right = 0;
    bool all_wrong = true;
    for (const T& t : things) {
      const bool has = trait.has(t), wrong = is_wrong(t);
      all_wrong = all_wrong && (has || !wrong);
      right += has && !wrong;
    }
    if (!all_wrong || right >= best_right) continue;
    best_right = right;
    best = &trait;
  }
  if (all_right == 0 || best == nullptr) return "";
  const std::string of_right =
      best_right == 0 ? "no right ones" : fmt::format("{} of {} right ones", best_right, all_right);
  return fmt::format("all wrong {}, and {}, {}", noun, of_right, best->text);
}

}  // namespace attnbench
