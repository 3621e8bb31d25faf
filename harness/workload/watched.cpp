// What a workload does for timed launches that are watched: other signs, poison, outputs as they are read.
#include <algorithm>

#include "harness/cases/kv_rows.h"
#include "harness/workload/workload.h"

namespace attnbench {
namespace {

/// A host tensor like `t`, with the table of signs in host memory.
SignedTensor on_host(SignedTensor t, void* data, const std::vector<uint8_t>& table) {
  t.data = data;
  t.table = table.data();
  return t;
}

}  // namespace

SignedTensor Workload::signed_tensor(Slot slot, bool of_change) const {
  const GuardedBuffer& b = memory(slot);
  if (!b.data()) return {};
  const CaseParams& p = item_.params;
  const bool merges = p.op == Op::kMergeStates;
  const auto* qk = sign_table_.as<uint8_t>();
  if (qk != nullptr && !of_change) qk += signs_.qk.size() + signs_.v.size() + row_signs(p, signs_).size();
  const uint8_t* v = qk == nullptr ? nullptr : qk + signs_.qk.size();
  const uint8_t* rows = v == nullptr ? nullptr : v + signs_.v.size();  // of fp8_ds_mla
  SignedTensor t{.data = b.data()};
  const auto rows_of = [&](DType dtype, int32_t dim, int32_t heads, int32_t group, const uint8_t* table,
                           int32_t table_dim) {
    t.dtype = dtype;
    t.dim = dim;
    t.heads = heads;
    t.group = group;
    t.table = table;
    t.table_dim = table_dim;
  };
  const int32_t group = merges ? 1 : p.num_heads_q / p.num_heads_kv;
  const int32_t dim_v = merges ? p.head_dim : p.dim_v();
  switch (slot) {
    case kQ:
      rows_of(p.type_of_q(), p.head_dim, p.num_heads_q, group, qk, p.head_dim);
      break;
    case kQv:  // signs of values, which it is multiplied with
      rows_of(p.dtype, dim_v, p.num_heads_q, group, v, dim_v);
      break;
    case kK:
    case kNewK:
      rows_of(slot == kK ? cache_job(false).dtype : p.type_of_new(false),
              p.head_dim / numbers_per_element(p.type_of_k()), p.num_heads_kv, 1, qk, p.head_dim);
      // Signs of such rows never change (sign_plan.cpp), so no table is read.
      if (slot == kK && p.one_row)
        rows_of(p.type_of_k(), p.head_dim + p.dim_v(), p.num_heads_kv, 1, nullptr, 0);
      if (p.op == Op::kAttention && p.kv_dtype == KvDType::kDsMla) {
        const auto bytes = static_cast<int32_t>(row_elements(p, false));
        rows_of(p.type_of_k(), bytes, p.num_heads_kv, 1, rows, bytes);
      }
      break;
    case kV:
    case kNewV:
      rows_of(slot == kV ? cache_job(true).dtype : p.type_of_new(true),
              dim_v / numbers_per_element(p.type_of_v()), p.num_heads_kv, 1, v, dim_v);
      break;
    case kPartialOut:
      rows_of(p.type_of_partial(), p.head_dim, p.num_heads_q, 1, v, dim_v);
      break;
    case kOut:
    case kDOut:
      if (p.op == Op::kKvAppend) {  // queries
        rows_of(shape_params(item_).kv_append.dtype_query_out, p.head_dim, p.num_heads_q, group, qk,
                p.head_dim);
        break;
      }
      rows_of(slot == kOut ? p.type_of_out() : p.dtype, dim_v, p.num_heads_q, group, v, dim_v);
      break;
    case kDq:
      rows_of(p.dtype, p.head_dim, p.num_heads_q, group, qk, p.head_dim);
      break;
    case kDk:
      rows_of(p.dtype, p.head_dim, p.num_heads_kv, 1, qk, p.head_dim);
      break;
    case kDv:
      rows_of(p.dtype, dim_v, p.num_heads_kv, 1, v, dim_v);
      break;
    default:  // floats without a sign to change
      break;
  }
  const bool source = p.op == Op::kKvMove && (slot == kNewK || slot == kNewV);
  const bool cache = source || (!p.gathers() && (slot == kK || slot == kV));
  if (cache && p.kv == KvSource::kPaged && p.kv_layout == KvLayout::kHnd) t.head_rows = p.block_size;
  t.elements = b.bytes() / static_cast<int64_t>(dtype_size(t.dtype));
  return t;
}

std::vector<LateSigns> Workload::set_signs(const SignPlan& signs, const FewChannels& late) {
  if (padded_) throw std::logic_error("signs of padded tensors");
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
    sign_table_ = GuardedBuffer::of(*device_, "signs", table);
  } else if (!table.empty()) {
    device_->upload(sign_table_.data(), table.data(), static_cast<int64_t>(table.size()));
  }
  for (const auto& other : others_) other->set_signs(signs, late);
  std::vector<LateSigns> changes;
  const bool through_k = item_.params.v_is_k_view;
  for (const Slot slot : {kQ, kQv, kK, kNewK, kV, kNewV, kPartialOut, kOut, kDOut}) {
    const SignedTensor t = signed_tensor(slot, true);
    if (t.data == nullptr || buffers_[slot].role == Role::kOutput) continue;
    device_->change_signs(t);
    const bool is_k = slot == kQ || slot == kK || slot == kNewK;
    const int32_t per = numbers_per_element(t.dtype);
    if (late.count > 0 && is_k == through_k)
      changes.push_back({t, late.head, late.first / per, late.count / per});
  }
  return changes;
}

std::vector<WatchedOutput> Workload::watched_outputs() const {
  std::vector<WatchedOutput> out;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const Buffer& b = buffers_[i];
    if (b.role == Role::kInput || b.memory.bytes() == 0) continue;
    WatchedOutput& o = out.emplace_back();
    o.tensor = signed_tensor(static_cast<Slot>(i));
    if (b.role != Role::kState) {
      if (item_.params.op != Op::kKvAppend) continue;
      o.tokens = appended_tokens_.as<int64_t>();
      o.num_tokens = appended_tokens_.bytes() / int64_t{sizeof(int64_t)};
      continue;
    }
    o.poisoned = i == kK || i == kV;  // a cache of scales holds a number that no scale has
    o.tokens = appended_slots_.as<int64_t>();
    o.num_tokens = appended_slots_.bytes() / int64_t{sizeof(int64_t)};
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
    appended_slots_ = GuardedBuffer::of(*device_, "appended slots", slots);
    appended_tokens_ = GuardedBuffer::of(*device_, "appended tokens", tokens);
  }
  for (const WatchedOutput& o : watched_outputs()) {
    if (o.poisoned) device_->poison(o);
  }
  for (const Slot slot : {kKScales, kVScales}) {
    if (memory(slot).data()) restore(slot);
  }
}

void Workload::take_signs_off(HostOutputs& h) const {
  if (signs_.v.empty() || signs_ == plain_signs(item_.params)) return;
  const auto change = [&](Slot slot, std::vector<unsigned char>& host, const std::vector<uint8_t>& table) {
    if (host.empty()) return;
    change_signs_host(on_host(signed_tensor(slot), host.data(), table));
  };
  change(kOut, h.out, item_.params.op == Op::kKvAppend ? signs_.qk : signs_.v);
  change(kDq, h.dq, signs_.qk);
  change(kDk, h.dk, signs_.qk);
  change(kDv, h.dv, signs_.v);
  change(kK, h.k_cache, signs_.qk);
  change(kV, h.v_cache, signs_.v);
}

}  // namespace attnbench
