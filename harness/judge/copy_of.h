// The numbers of a span in a vector of its own: reference rows that are kept.
#pragma once

#include <span>
#include <vector>

namespace attnbench {

template <class T>
std::vector<T> copy_of(std::span<const T> from) {
  return {from.begin(), from.end()};
}

}  // namespace attnbench
