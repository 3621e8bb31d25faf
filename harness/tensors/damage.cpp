// What a launch has changed: digests of outputs, and damage of guards and inputs.
#include <fmt/format.h>

#include "harness/tensors/workload.h"

namespace attnbench {

uint64_t Workload::outputs_digest() const {
  uint64_t all = 0;
  for (const NamedTensor& t : tensors_) {
    if (t.role == Role::kInput || !t.memory.data()) continue;
    all = all * 31 + device_->digest(t.memory.data(), t.memory.bytes());
  }
  return all;
}

std::optional<std::string> Workload::guard_damage() const {
  for (const NamedTensor& t : tensors_) {
    if (auto damage = t.memory.damage()) return damage;
  }
  return of_others([](const Workload& w) { return w.guard_damage(); });
}

std::optional<std::string> Workload::of_others(
    const std::function<std::optional<std::string>(const Workload&)>& damage) const {
  for (std::size_t i = 0; i < others_.size(); ++i) {
    if (auto found = damage(*others_[i])) return fmt::format("rank {}: {}", i + 1, *found);
  }
  return std::nullopt;
}

std::optional<std::string> Workload::input_damage() const {
  for (const NamedTensor& t : tensors_) {
    if (t.role != Role::kInput || !t.memory.data()) continue;
    if (device_->digest(t.memory.data(), t.memory.bytes()) != t.digest) {
      return "input " + t.memory.name() + " was overwritten";
    }
  }
  return of_others([](const Workload& w) { return w.input_damage(); });
}

}  // namespace attnbench
