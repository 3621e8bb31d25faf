#include "harness/workload/workload.h"

#include <fmt/format.h>

#include "harness/cases/cost.h"
#include "harness/device/ranks.h"
#include "harness/error.h"
#include "harness/workload/append_scales.h"
#include "harness/workload/captured_fill.h"
#include "harness/workload/custom_mask.h"
#include "harness/workload/descales.h"
#include "harness/workload/key_lists.h"
#include "harness/workload/merge_inputs.h"

namespace attnbench {
namespace {

int64_t bytes_of(DType t) { return static_cast<int64_t>(dtype_size(t)); }

FillJob token_job(const Case& c, Tensor tensor, DType dtype, int64_t rows, int32_t heads, int32_t dim,
                  const TokenStrides& strides) {
  FillJob job{};
  job.dtype = dtype;
  job.tensor = tensor;
  job.spec = {c.seed, c.params.data};
  job.num_rows = rows;
  job.block_size = rows > 0 ? rows : 1;
  job.stride_block = 0;
  job.stride_token = strides.token;
  job.stride_head = strides.head;
  job.num_heads = heads;
  job.head_dim = dim;
  return job;
}

/// `host` with one more entry at its end, as in a buffer that an engine makes once for its largest batch. A
/// kernel that takes one sequence or token too many then goes wrong every time, not by luck.
template <class T>
std::vector<T> with_stale(std::vector<T> host, T entry) {
  host.push_back(entry);
  return host;
}

/// Cumulative lengths with one more entry: a sequence of one token.
std::vector<int32_t> with_stale_sequence(const std::vector<int32_t>& cu_seqlens) {
  return with_stale(cu_seqlens, cu_seqlens.back() + 1);
}

}  // namespace

FillJob Workload::cache_job(bool is_v) const {
  const CaseParams& p = item_.params;
  const KvStrides s = cache_strides(p, is_v, padded_);
  FillJob job = token_job(item_, is_v ? Tensor::kV : Tensor::kK, p.gathers() ? p.dtype : p.type_of_kv(is_v),
                          static_cast<int64_t>(plan_.kv_owners.size()), p.num_heads_kv,
                          p.dim_of_kv(is_v) - (is_v ? 0 : p.k_tail()), {s.token, s.head});
  if (s.rows > 0) job.block_size = s.rows;
  job.stride_block = s.block;
  return job;
}

void* Workload::cache_base(bool is_v, void* cache) const {
  const CaseParams& p = item_.params;
  const int64_t before = p.one_row && !is_v ? p.dim_v() * bytes_of(p.type_of_v()) : 0;
  return cache == nullptr ? nullptr : static_cast<char*>(cache) + before;
}

GuardedBuffer& Workload::make(Slot slot, Role role, const char* name, int64_t bytes) {
  Buffer& b = buffers_[slot];
  b = {GuardedBuffer(*device_, name, bytes), role};
  if (padded_ && bytes > 0) device_->set_bytes(b.memory.data(), 0xff, bytes);
  return b.memory;
}

template <class T>
void Workload::make_input(Slot slot, const char* name, const std::vector<T>& host) {
  buffers_[slot] = {GuardedBuffer::of(*device_, name, host), Role::kInput};
}

void Workload::make_tokens(Slot slot, const char* name, Tensor tensor, DType dtype,
                           const std::vector<RowOwner>& owners, int32_t heads, const TokenStrides& strides,
                           int32_t dim) {
  const int64_t rows = static_cast<int64_t>(owners.size());
  FillJob job = token_job(item_, tensor, dtype, rows, heads, dim, strides);
  const int64_t bytes = rows * strides.token * bytes_of(dtype);
  job.base = make(slot, Role::kInput, name, bytes).data();
  fill_rows(job, owners, bytes);
}

void Workload::fill_rows(FillJob job, const std::vector<RowOwner>& owners, int64_t bytes) {
  GuardedBuffer device_owners = GuardedBuffer::of(*device_, "row owners", owners);
  job.owners = device_owners.as<RowOwner>();
  if (later_) {
    device_->set_bytes(job.base, 0xff, bytes);
    fills_.push_back({job, std::move(device_owners)});
    return;
  }
  fill(job, owners, bytes);
  device_->synchronize();  // device_owners goes out of scope
}

void Workload::fill(const FillJob& job, const std::vector<RowOwner>& owners, int64_t bytes) {
  if (item_.params.captured) return fill_captured(*device_, job, owners, bytes, *item_.params.captured);
  device_->fill(job);
}

void Workload::fill_values() {
  if (!later_) return;
  later_ = false;
  for (const auto& other : others_) other->fill_values();
  // Captured cases have one such tensor: q.
  for (const Fill& f : fills_) fill(f.job, plan_.q_owners, memory(kQ).bytes());
  for (const Slot slot : {kK, kV}) {
    if (memory(slot).data()) restore(slot);
  }
  device_->synchronize();
  fills_.clear();
  if (forward_ != nullptr) run_forward();
  remember_inputs();
}

void Workload::restore(Slot slot) {
  const GuardedBuffer& b = memory(slot);
  const bool is_v = slot == kV || slot == kVScales;
  if (slot == kKScales || slot == kVScales) {
    device_->upload(b.data(), scales_before(item_, plan_, is_v, padded_).data(), b.bytes());
    return;
  }
  if (padded_ && b.bytes() > 0) device_->set_bytes(b.data(), 0xff, b.bytes());
  for (const bool v : {is_v, true}) {
    if (v != is_v && !item_.params.one_row) continue;
    for (const FillJob& job : cache_jobs(v, cache_base(v, b.data()))) fill(job, plan_.kv_owners, b.bytes());
    if (v) break;
  }
  if (!signs_.v.empty()) device_->change_signs(signed_tensor(slot));
}

void Workload::make_caches() {
  const bool state = writes_cache(item_.params);
  kv_owners_ = GuardedBuffer::of(*device_, "row owners", plan_.kv_owners);
  for (const bool is_v : {false, true}) {
    if (is_v && (item_.params.v_is_k_view || item_.params.one_row)) continue;
    const FillJob job = cache_job(is_v);
    const int64_t elements = job.stride_block > 0 ? job.num_rows / job.block_size * job.stride_block
                                                  : job.num_rows * job.stride_token;
    const Slot slot = is_v ? kV : kK;
    const bool moved = item_.params.op == Op::kKvMove;
    make(slot, state ? Role::kState : Role::kInput,
         moved   ? (is_v ? "v_dst" : "k_dst")
         : state ? (is_v ? "v_cache" : "k_cache")
         : is_v  ? "v"
                 : "k",
         elements * bytes_of(job.dtype));
    if (later_) {
      device_->set_bytes(data(slot), 0xff, memory(slot).bytes());
    } else {
      restore(slot);
    }
  }
}

void Workload::make_rotary_tables() {
  if (item_.params.rotary == Rotary::kNone) return;
  const RotaryTables tables = rotary_tables_of(item_);
  rotary_positions_ = tables.positions;
  make_input(kRotaryCos, "rotary cos", tables.cos);
  make_input(kRotarySin, "rotary sin", tables.sin);
}

Workload::Workload(Device& device, const Case& item, const LayoutVariant& variant, Values values)
    : device_(&device),
      item_(item),
      plan_(plan_workload(item, variant)),
      padded_(variant.padded_strides),
      later_(values == Values::kLater),
      forward_(item.params.op == Op::kAttentionBackward ? variant.forward : nullptr) {
  switch (item.params.op) {
    case Op::kAttention:
      make_attention(variant);
      break;
    case Op::kKvAppend:
      make_kv_append();
      break;
    case Op::kMergeStates:
      make_states();
      break;
    case Op::kAttentionBackward:
      make_backward(variant);
      break;
    case Op::kKvMove:
      make_kv_move();
      break;
  }
  if (!later_) {
    if (forward_ != nullptr) run_forward();
    remember_inputs();
  }
  if (item.params.devices() == 1 || variant.rank > 0) return;
  std::string why_not;
  const RankTeam* team = device.rank_team(item.params.devices(), why_not);
  if (team == nullptr) throw DeviceError(why_not, false);
  for (int32_t r = 1; r < team->ranks(); ++r) {
    LayoutVariant other = variant;
    other.rank = r;
    others_.push_back(
        std::make_unique<Workload>(*team->devices[static_cast<std::size_t>(r)], item, other, values));
  }
}

void Workload::remember_inputs() {
  for (Buffer& b : buffers_) {
    if (b.role == Role::kInput && b.memory.data())
      b.digest = device_->digest(b.memory.data(), b.memory.bytes());
  }
}

void Workload::make_kv_append() {
  const CaseParams& p = item_.params;
  const KvAppendParams a = shape_params(item_, padded_).kv_append;
  make_caches();
  make_rotary_tables();
  if (p.rotary != Rotary::kNone) make_positions();
  make_tokens(kNewK, "key", Tensor::kNewK, p.dtype, plan_.token_owners, p.num_heads_kv,
              {a.key_stride_token, a.key_stride_head}, p.head_dim);
  make_tokens(kNewV, "value", Tensor::kNewV, p.dtype, plan_.token_owners, p.num_heads_kv,
              {a.value_stride_token, a.value_stride_head}, p.dim_v());
  make_input(kSlotMapping, "slot_mapping", with_stale(plan_.slot_mapping, int64_t{0}));
  if (p.query_out != QueryOut::kNone) {
    make_tokens(kQ, "query", Tensor::kQ, p.dtype, plan_.token_owners, p.num_heads_q,
                {a.query_stride_token, a.query_stride_head}, p.head_dim);
    const int64_t elements = std::ssize(plan_.token_owners) * a.query_out_stride_token;
    make(kOut, Role::kOutput, "query_out", elements * bytes_of(a.dtype_query_out));
    if (p.query_out == QueryOut::kE4m3)
      make_input(kOutScale, "query_scale", std::vector<float>{query_scale_of(item_)});
  }
  for (const bool is_v : {false, true}) {
    if (const auto given = given_scales(item_, is_v, padded_); !given.empty())
      make_input(is_v ? kVDescale : kKDescale, is_v ? "v_scale" : "k_scale", given);
    if (const auto before = scales_before(item_, plan_, is_v, padded_); !before.empty()) {
      buffers_[is_v ? kVScales : kKScales] = {
          GuardedBuffer::of(*device_, is_v ? "v_scales" : "k_scales", before), Role::kState};
    }
  }
}

void Workload::make_positions() {
  if (item_.params.positions64) {
    make_input(kPositions, "positions", std::vector<int64_t>(plan_.positions.begin(), plan_.positions.end()));
  } else {
    make_input(kPositions, "positions", plan_.positions);
  }
}

void Workload::make_attention(const LayoutVariant& variant) {
  const CaseParams& p = item_.params;
  const AttentionParams a = shape_params(item_, padded_).attention;
  make_caches();
  make_block_scales();
  make_rotary_tables();
  if (p.append) {
    make_tokens(kNewK, "k_new", Tensor::kNewK, p.type_of_new(false), plan_.token_owners, p.num_heads_kv,
                {a.k_new_stride_token, a.k_new_stride_head}, p.head_dim);
    make_tokens(kNewV, "v_new", Tensor::kNewV, p.type_of_new(true), plan_.token_owners, p.num_heads_kv,
                {a.v_new_stride_token, a.v_new_stride_head}, p.head_dim);
    make_input(kCuSeqlensNew, "cu_seqlens_new", with_stale_sequence(plan_.cu_seqlens_new));
  }
  make_tokens(kQ, "q", Tensor::kQ, p.type_of_q(), plan_.q_owners, p.num_heads_q,
              {a.q_stride_token, a.q_stride_head}, p.head_dim);
  if (p.qv) {
    make_tokens(kQv, "qv", Tensor::kQv, p.dtype, plan_.q_owners, p.num_heads_q,
                {a.qv_stride_token, a.qv_stride_head}, p.dim_v());
  }
  make(kOut, Role::kOutput, "out", plan_.total_q * a.out_stride_token * bytes_of(p.type_of_out()));
  if (p.e4m3_out) make_input(kOutScale, "out_scale", std::vector<float>{out_scale_of(item_)});
  make(kLse, Role::kOutput, "lse",
       lse_elements(plan_.total_q, p.num_heads_q, a.lse_stride_token) * int64_t{sizeof(float)});
  if (p.probs) {
    make(kProbs, Role::kOutput, "probs",
         p.num_heads_q * plan_.total_q * a.probs_stride_token * int64_t{sizeof(float)});
  }
  make_lengths();
  if (p.kv == KvSource::kPaged) make_input(kBlockTable, "block_table", with_stale(plan_.block_table, 0));
  const auto if_any = [&](Slot slot, const char* name, const auto& host) {
    if (!host.empty()) make_input(slot, name, host);
  };
  const auto stale_if_any = [&](Slot slot, const char* name, const std::vector<int32_t>& host,
                                int32_t entry) {
    if (!host.empty()) make_input(slot, name, with_stale(host, entry));
  };
  stale_if_any(kSequsedQ, "seqused_q", plan_.seqused_q, 1);
  stale_if_any(kSequsedK, "seqused_k", plan_.seqused_k, 1);
  stale_if_any(kCacheBatchIdx, "cache_batch_idx", plan_.cache_batch_idx, 0);
  stale_if_any(kCacheLeftpad, "cache_leftpad", plan_.cache_leftpad, 0);
  const PackedMask mask = packed_mask_of(item_, variant);
  if_any(kCustomMask, "custom_mask", mask.bytes);
  stale_if_any(kMaskIndptr, "mask_indptr", mask.indptr, 0);
  const KeyListTensors lists = key_list_tensors(item_, plan_, variant);
  if_any(kTopkIndices, "topk_indices", lists.indices);
  if_any(kTopkLengths, "topk_length", lists.lengths);
  make_score_terms(variant);
  if_any(kQDescale, "q_descale", q_descales_of(item_, plan_, variant));
  if_any(kKDescale, "k_descale", k_descales_of(item_, plan_, variant));
  if_any(kVDescale, "v_descale", v_descales_of(item_, variant));
}

void Workload::make_lengths() {
  make_input(kCuSeqlensQ, "cu_seqlens_q", with_stale_sequence(plan_.cu_seqlens_q));
  if (item_.params.kv == KvSource::kPacked)
    make_input(kCuSeqlensK, "cu_seqlens_k", with_stale_sequence(plan_.cu_seqlens_k));
}

void Workload::make_score_terms(const LayoutVariant& variant) {
  const std::vector<float> slopes = alibi_slopes_of(item_, variant), sinks = sinks_of(item_);
  if (!slopes.empty()) make_input(kAlibiSlopes, "alibi_slopes", slopes);
  if (!sinks.empty()) make_input(kSinks, "sinks", sinks);
}

void Workload::make_states() {
  const CaseParams& p = item_.params;
  const std::vector<RowOwner> owners = partial_out_owners(item_);
  const int64_t rows = static_cast<int64_t>(owners.size());
  const MergeStatesParams m = shape_params(item_, padded_).merge_states;
  const int64_t from_token = p.ragged_states ? m.partial_stride_state : m.partial_stride_token;
  const GuardedBuffer& states = make(kPartialOut, Role::kInput, "partial_out",
                                     rows / m.num_heads * from_token * bytes_of(p.type_of_partial()));
  if (rows > 0) {
    // Each head is a row, and a block is the heads of one token. The tokens of all states follow each other
    // without gaps.
    FillJob job = token_job(item_, Tensor::kPartialO, p.type_of_partial(), rows, 1, p.head_dim,
                            {m.partial_stride_head, 0});
    job.block_size = m.num_heads;
    job.stride_block = from_token;
    job.base = states.data();
    fill_rows(job, owners, states.bytes());
  }
  make_input(kPartialLse, "partial_lse", partial_lse_tensor(item_));
  if (p.ragged_states) make_input(kStateIndptr, "state_indptr", with_stale_sequence(state_indptr_of(item_)));
  make(kOut, Role::kOutput, "out", m.num_rows * m.out_stride_token * bytes_of(p.type_of_out()));
  if (p.e4m3_out) make_input(kOutScale, "out_scale", std::vector<float>{out_scale_of(item_)});
  make(kLse, Role::kOutput, "lse",
       lse_elements(m.num_rows, m.num_heads, m.out_lse_stride_token) * int64_t{sizeof(float)});
}

OpParams Workload::params() const {
  OpParams op = shape_params(item_, padded_);
  if (op.op == Op::kMergeStates) {
    MergeStatesParams& m = op.merge_states;
    m.partial_out = data(kPartialOut);
    m.partial_lse = data<float>(kPartialLse);
    m.state_indptr = data<int32_t>(kStateIndptr);
    if (item_.params.ragged_states) m.total_states = state_indptr_of(item_).back();
    m.out = data(kOut);
    m.out_scale = data<float>(kOutScale);
    m.out_lse = data<float>(kLse);
    return op;
  }
  if (op.op == Op::kKvAppend) {
    KvAppendParams& a = op.kv_append;
    a.num_blocks = plan_.num_blocks;
    a.key = data(kNewK);
    a.value = data(kNewV);
    a.slot_mapping = data<int64_t>(kSlotMapping);
    if (item_.params.positions64) {
      a.positions64 = data<int64_t>(kPositions);
    } else {
      a.positions = data<int32_t>(kPositions);
    }
    a.query = data(kQ);
    a.query_out = data(kOut);
    a.query_scale = data<float>(kOutScale);
    set_rotary_tables(a.rotary);
    const bool one_row = item_.params.one_row;
    a.k_cache = cache_base(false, data(kK));
    a.v_cache = cache_base(true, data(one_row ? kK : kV));
    a.k_scale.given = data<float>(kKDescale);
    a.v_scale.given = data<float>(kVDescale);
    a.k_scale.computed = data<float>(kKScales);
    a.v_scale.computed = data<float>(kVScales);
    return op;
  }
  if (op.op == Op::kAttentionBackward) {
    set_backward_pointers(op.attention_backward);
    return op;
  }
  if (op.op == Op::kKvMove) {
    set_move_pointers(op.kv_move);
    return op;
  }
  AttentionParams& a = op.attention;
  a.total_q = plan_.total_q;
  a.lse_stride_head = lse_stride(plan_.total_q);
  a.probs_stride_head = a.total_q * a.probs_stride_token;
  a.num_blocks = plan_.num_blocks;
  a.q = data(kQ);
  a.qv = data(kQv);
  a.k = data(kK);
  a.v = item_.params.v_is_k_view ? data(kK) : data(kV);
  a.cu_seqlens_q = data<int32_t>(kCuSeqlensQ);
  a.cu_seqlens_k = data<int32_t>(kCuSeqlensK);
  a.seqused_q = data<int32_t>(kSequsedQ);
  a.seqused_k = data<int32_t>(kSequsedK);
  a.block_table = data<int32_t>(kBlockTable);
  a.block_table_stride = plan_.block_table_stride;
  a.cache_batch_idx = data<int32_t>(kCacheBatchIdx);
  a.cache_leftpad = data<int32_t>(kCacheLeftpad);
  a.custom_mask = data<uint8_t>(kCustomMask);
  a.mask_indptr = data<int32_t>(kMaskIndptr);
  a.topk_indices = data<int32_t>(kTopkIndices);
  a.topk_length = data<int32_t>(kTopkLengths);
  if (item_.params.append) {
    a.k_new = data(kNewK);
    a.v_new = data(kNewV);
    a.cu_seqlens_new = data<int32_t>(kCuSeqlensNew);
    a.total_new = plan_.cu_seqlens_new.back();
    a.k_cache = data(kK);
    a.v_cache = data(kV);
  }
  set_rotary_tables(a.rotary);
  a.alibi_slopes = data<float>(kAlibiSlopes);
  a.sinks = data<float>(kSinks);
  a.q_descale = data<float>(kQDescale);
  a.k_descale = data<float>(kKDescale);
  a.v_descale = data<float>(kVDescale);
  set_block_scales(a);
  a.out = data(kOut);
  a.out_scale = data<float>(kOutScale);
  a.lse = data<float>(kLse);
  a.probs = data<float>(kProbs);
  return op;
}

void Workload::set_rotary_tables(RotaryParams& r) const {
  r.cos = data<float>(kRotaryCos);
  r.sin = data<float>(kRotarySin);
  r.positions = rotary_positions_;
}

void Workload::take_inputs_of(const Workload& other) {
  std::vector<unsigned char> host;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const Slot slot = static_cast<Slot>(i);
    const GuardedBuffer &to = memory(slot), &from = other.memory(slot);
    if (buffers_[slot].role != Role::kInput || from.bytes() == 0) continue;
    if (from.bytes() > to.bytes()) throw std::logic_error("no room for other " + to.name());
    if (slot == kK || slot == kV) {  // filled again: a copy may be too large for the host
      for (const FillJob& job : other.cache_jobs(slot == kV, to.data())) device_->fill(job);
      device_->synchronize();
      continue;
    }
    host.resize(static_cast<std::size_t>(from.bytes()));
    device_->download(host.data(), from.data(), from.bytes());
    device_->upload(to.data(), host.data(), from.bytes());
  }
  plan_.cu_seqlens_q = other.plan_.cu_seqlens_q;  // where outputs lie from now on
  plan_.seqused_q = other.plan_.seqused_q;
  remember_inputs();
}

void Workload::reset_outputs(unsigned char fill) {
  for (std::size_t i = 0; i < kSlots; ++i) {
    const Buffer& b = buffers_[i];
    if (b.memory.bytes() == 0) continue;
    if (b.role == Role::kOutput) device_->set_bytes(b.memory.data(), fill, b.memory.bytes());
    if (b.role == Role::kState) restore(static_cast<Slot>(i));
  }
  device_->synchronize();
}

}  // namespace attnbench
