// What a workload does for timed launches that are watched: other signs, poison, outputs as they are read.
#include "harness/tensors/workload.h"

namespace attnbench {

SignedTensor Workload::signed_tensor(const NamedTensor& t, bool of_change) const {
  SignedTensor out = t.rows.at;
  out.data = t.memory.data();
  out.elements = t.memory.bytes() / static_cast<int64_t>(dtype_size(out.dtype));
  const auto* qk = sign_table_.as<uint8_t>();
  if (qk == nullptr) return out;
  if (!of_change) qk += signs_.qk.size() + signs_.v.size() + row_signs(item_.params, signs_).size();
  const uint8_t* v = qk + signs_.qk.size();
  const uint8_t* const tables[] = {nullptr, qk, v, v + signs_.v.size()};
  out.table = tables[static_cast<int>(t.rows.signs)];
  return out;
}

std::vector<LateSigns> Workload::set_signs(const SignPlan& signs, const FewChannels& late) {
  if (padded()) throw std::logic_error("signs of padded tensors");
  signs_ = this->signs();
  std::vector<uint8_t> table;
  const auto add_changed = [&table](const std::vector<uint8_t>& from, const std::vector<uint8_t>& to) {
    for (std::size_t i = 0; i < from.size(); ++i) table.push_back(static_cast<uint8_t>(from[i] ^ to[i]));
  };
  add_changed(signs_.qk, signs.qk);
  add_changed(signs_.v, signs.v);
  add_changed(row_signs(item_.params, signs_), row_signs(item_.params, signs));
  signs_ = late.count > 0 ? changed_in(item_.params, signs, late) : signs;
  table.insert(table.end(), signs_.qk.begin(), signs_.qk.end());
  table.insert(table.end(), signs_.v.begin(), signs_.v.end());
  const std::vector<uint8_t> rows = row_signs(item_.params, signs_);
  table.insert(table.end(), rows.begin(), rows.end());
  if (!sign_table_.data()) {
    sign_table_ = GuardedBuffer::of(*device_, "signs", table, Access::kLooks);
  } else if (!table.empty()) {
    device_->upload(sign_table_.data(), table.data(), static_cast<int64_t>(table.size()));
  }
  for (const auto& other : others_) other->set_signs(signs, late);
  std::vector<LateSigns> changes;
  for (const NamedTensor& named : tensors_) {
    if (named.role == Role::kOutput || named.rows.signs == SignsOf::kNothing) continue;
    const SignedTensor t = signed_tensor(named, true);
    if (t.data == nullptr) continue;
    device_->change_signs(t);
    const int32_t per = numbers_per_element(t.dtype);
    if (late.count > 0 && (named.rows.signs != SignsOf::kV) == item_.params.v_is_k_view)
      changes.push_back({t, late.head, late.first / per, late.count / per});
  }
  return changes;
}

std::vector<WatchedOutput> Workload::watched_outputs() const {
  std::vector<WatchedOutput> out;
  for (const NamedTensor& t : tensors_) {
    if (t.role == Role::kInput || t.memory.bytes() == 0) continue;
    WatchedOutput& o = out.emplace_back();
    o.tensor = signed_tensor(t);
    o.poisoned = t.rows.poisoned;
    if (t.role == Role::kOutput && !item_.params.does().appends) continue;
    const GuardedBuffer& written = t.role == Role::kState ? appended_slots_ : appended_tokens_;
    o.tokens = written.as<int64_t>();
    o.num_tokens = written.bytes() / int64_t{sizeof(int64_t)};
  }
  return out;
}

void Workload::poison_outputs() {
  if (writes_cache(item_.params) && !appended_slots_.data()) {
    std::vector<int64_t> slots, tokens;
    for (std::size_t t = 0; t < plan_.slot_mapping.size(); ++t) {
      if (plan_.slot_mapping[t] < 0) continue;
      slots.push_back(plan_.slot_mapping[t]);
      tokens.push_back(static_cast<int64_t>(t));
    }
    appended_slots_ = GuardedBuffer::of(*device_, "appended slots", slots, Access::kLooks);
    appended_tokens_ = GuardedBuffer::of(*device_, "appended tokens", tokens, Access::kLooks);
  }
  for (const WatchedOutput& o : watched_outputs()) {
    if (o.poisoned) device_->poison(o);
  }
  for (const NamedTensor& t : tensors_) {
    if (t.role == Role::kState && !t.rows.poisoned) restore(t);
  }
}

void Workload::take_signs_off(const NamedTensor& t, void* host, std::span<const Hole> holes) const {
  if (t.rows.signs == SignsOf::kNothing || signs_.v.empty() || signs_ == plain_signs(item_.params)) return;
  SignedTensor on_host = signed_tensor(t);
  on_host.data = host;
  on_host.table = (t.rows.signs == SignsOf::kV ? signs_.v : signs_.qk).data();
  for_each_part(on_host, holes, change_signs_host);
}

}  // namespace attnbench
