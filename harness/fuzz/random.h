// Random numbers that are the same on every platform: SplitMix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, OOPSLA 2014). The distributions of <random> differ between libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attnbench {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  /// 0 to n - 1; n is 1 or more.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  /// lo to hi, both included.
  int64_t between(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(below(static_cast<std::size_t>(hi - lo) + 1));
  }
  /// From 0 up to, not including, 1.
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double share) { return unit() < share; }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace attnbench
