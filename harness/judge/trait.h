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

/// Before other traits of a telling_trait().
inline constexpr const char* kFitsAsWell = "; what fits as well: ";

/// Names the trait that all wrong things and fewest right things have, the first of equals, and up to two others: "all
/// wrong rows, and 2 of 40 right ones, are causal; what fits as well: see no key". Empty if nothing is right, if more
/// than a tenth of the right things have it, or if with a chance of 1 % or more as many wrong things in random places all
/// have one of so many traits.
template <typename T>
std::string telling_trait(const std::vector<Trait<T>>& traits, std::span<const T> things, const char* noun,
                          const std::function<bool(const T&)>& is_wrong) {
  const auto all_right =
      static_cast<std::size_t>(std::ranges::count_if(things, [&](const T& t) { return !is_wrong(t); }));
  const std::size_t all_wrong = things.size() - all_right;
  constexpr double kMostChance = 0.01;
  const auto by_chance = [&](std::size_t right) {
    double chance = static_cast<double>(traits.size());
    for (std::size_t i = 0; i < all_wrong; ++i)
      chance *= static_cast<double>(all_wrong + right - i) / static_cast<double>(things.size() - i);
    return chance >= kMostChance;
  };
  std::vector<const Trait<T>*> best;
  std::size_t best_right = all_right / 10;
  for (const Trait<T>& trait : traits) {
    std::size_t right = 0;
    bool fits = true;
    for (const T& t : things) {
      const bool has = trait.has(t), wrong = is_wrong(t);
      fits = fits && (has || !wrong);
      right += has && !wrong;
    }
    if (!fits || right > best_right) continue;
    if (right < best_right) best.clear();
    best_right = right;
    best.push_back(&trait);
  }
  if (all_right == 0 || best.empty() || by_chance(best_right)) return "";
  const std::string of_right =
      best_right == 0 ? "no right ones" : fmt::format("{} of {} right ones", best_right, all_right);
  constexpr std::size_t kMostNamed = 3;
  std::string text = fmt::format("all wrong {}, and {}, {}", noun, of_right, best.front()->text);
  for (std::size_t i = 1; i < std::min(best.size(), kMostNamed); ++i)
    text += (i == 1 ? kFitsAsWell : "; ") + best[i]->text;
  return text;
}

}  // namespace attnbench
