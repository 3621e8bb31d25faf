// Reference rows that are kept.
#pragma once

#include <memory>
#include <span>
#include <vector>

namespace attnbench {

/// Copies the numbers of spans, and gives spans of the copies, which live as long as it does.
class Keep {
 public:
  template <class T>
  std::span<const T> operator()(std::span<const T> from) {
    const auto copy = std::make_shared<const std::vector<T>>(from.begin(), from.end());
    kept_.push_back(copy);
    return *copy;
  }

 private:
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace attnbench
