#include "harness/workload/workload.h"

#include <new>

#include "harness/cases/cost.h"
#include "harness/error.h"
#include "harness/workload/append_scales.h"
#include "harness/workload/descales.h"
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

/// `host` with an entry more behind it, as in a buffer that an engine made for its largest batch and keeps:
/// who asks for a sequence or a token more than there are must not find out by luck.
template <class T>
std::vector<T> with_stale(std::vector<T> host, T entry) {
  host.push_back(entry);
  return host;
}

/// Likewise of cumulative lengths: a sequence of one token.
std::vector<int32_t> with_stale_sequence(const std::vector<int32_t>& cu_seqlens) {
  return with_stale(cu_seqlens, cu_seqlens.back() + 1);
}

/// What the leading rows that belong to no sequence hold is nobody's business.
void drop_lead_rows(HostOutputs& h, int64_t lead, int64_t total) {
  if (lead == 0) return;
  const auto first = h.out.begin();
  h.out.erase(first, first + static_cast<std::ptrdiff_t>(h.out.size()) / total * lead);
  const std::size_t lse_rows = h.lse.size();
  std::vector<float> lse;
  for (std::size_t i = 0; i < h.lse.size(); ++i) {
    if (static_cast<int64_t>(i) % total >= lead) lse.push_back(h.lse[i]);
  }
  h.lse = std::move(lse);
  if (h.probs.empty()) return;
  std::vector<float> probs;
  const std::size_t row = h.probs.size() / lse_rows;
  for (std::size_t i = 0; i < h.probs.size(); ++i) {
    if (static_cast<int64_t>(i / row) % total >= lead) probs.push_back(h.probs[i]);
  }
  h.probs = std::move(probs);
}

}  // namespace

FillJob Workload::cache_job(bool is_v) const {
  const CaseParams& p = item_.params;
  const KvStrides s = kv_strides(p, is_v, padded_);
  FillJob job = token_job(item_, is_v ? Tensor::kV : Tensor::kK, is_v ? p.type_of_v() : p.type_of_k(),
                          static_cast<int64_t>(plan_.kv_owners.size()), p.num_heads_kv,
                          is_v ? p.dim_v() : p.head_dim, {s.token, s.head});
  if (s.rows > 0) job.block_size = s.rows;
  job.stride_block = s.block;
  return job;
}

GuardedBuffer Workload::make_cache(const char* name, bool is_v) {
  const FillJob job = cache_job(is_v);
  const int64_t elements = job.stride_block > 0 ? job.num_rows / job.block_size * job.stride_block
                                                : job.num_rows * job.stride_token;
  return poisoned(name, elements * bytes_of(job.dtype));
}

GuardedBuffer Workload::poisoned(const char* name, int64_t bytes) {
  GuardedBuffer b(*device_, name, bytes);
  if (padded_ && bytes > 0) device_->set_bytes(b.data(), 0xff, bytes);  // what lies between rows
  return b;
}

void Workload::fill_cache(GuardedBuffer& cache, bool is_v) {
  FillJob job = cache_job(is_v);
  job.base = cache.data();
  job.owners = kv_owners_.as<RowOwner>();
  device_->fill(job);
}

GuardedBuffer& Workload::keep_input(GuardedBuffer& b) {
  inputs_.push_back({&b, device_->digest(b.data(), b.bytes())});
  return b;
}

Workload::Workload(Device& device, const Case& item, const LayoutVariant& variant)
    : device_(&device), item_(item), plan_(plan_workload(item, variant)), padded_(variant.padded_strides) {
  const CaseParams& p = item_.params;
  if (p.op == Op::kMergeStates) {
    make_states();
    return;
  }
  const OpParams shape = shape_params(item, padded_);
  kv_owners_ = GuardedBuffer::of(device, "row owners", plan_.kv_owners);
  k_ = make_cache(writes_cache(p) ? "k_cache" : "k", false);
  fill_cache(k_, false);
  if (!p.v_is_k_view) {
    v_ = make_cache(writes_cache(p) ? "v_cache" : "v", true);
    fill_cache(v_, true);
  }

  const auto fill_tokens = [&](GuardedBuffer& b, const char* name, Tensor tensor, DType dtype,
                               const std::vector<RowOwner>& owners, int32_t heads,
                               const TokenStrides& strides) {
    const int64_t rows = static_cast<int64_t>(owners.size());
    b = poisoned(name, rows * strides.token * bytes_of(dtype));
    GuardedBuffer device_owners = GuardedBuffer::of(device, "row owners", owners);
    FillJob job = token_job(item_, tensor, dtype, rows, heads, p.head_dim, strides);
    job.base = b.data();
    job.owners = device_owners.as<RowOwner>();
    device.fill(job);
    device.synchronize();  // the owners go out of scope
  };

  if (p.rotary != Rotary::kNone) {
    const RotaryTables tables = rotary_tables_of(item_);
    rotary_positions_ = tables.positions;
    rotary_cos_ = GuardedBuffer::of(device, "rotary cos", tables.cos);
    rotary_sin_ = GuardedBuffer::of(device, "rotary sin", tables.sin);
    keep_input(rotary_cos_);
    keep_input(rotary_sin_);
  }

  if (p.op == Op::kKvAppend) {
    if (p.rotary != Rotary::kNone) {
      positions_ = GuardedBuffer::of(device, "positions", plan_.positions);
      keep_input(positions_);
    }
    const KvAppendParams& a = shape.kv_append;
    fill_tokens(new_k_, "key", Tensor::kNewK, p.dtype, plan_.token_owners, p.num_heads_kv,
                {a.key_stride_token, a.key_stride_head});
    fill_tokens(new_v_, "value", Tensor::kNewV, p.dtype, plan_.token_owners, p.num_heads_kv,
                {a.value_stride_token, a.value_stride_head});
    slots_ = GuardedBuffer::of(device, "slot_mapping", with_stale(plan_.slot_mapping, int64_t{0}));
    for (GuardedBuffer* b : {&new_k_, &new_v_, &slots_}) keep_input(*b);
    make_scales();
    return;
  }

  const AttentionParams& a = shape.attention;
  if (p.append) {
    fill_tokens(new_k_, "k_new", Tensor::kNewK, p.dtype, plan_.token_owners, p.num_heads_kv,
                {a.k_new_stride_token, a.k_new_stride_head});
    fill_tokens(new_v_, "v_new", Tensor::kNewV, p.dtype, plan_.token_owners, p.num_heads_kv,
                {a.v_new_stride_token, a.v_new_stride_head});
    cu_new_ = GuardedBuffer::of(device, "cu_seqlens_new", with_stale_sequence(plan_.cu_seqlens_new));
    for (GuardedBuffer* b : {&new_k_, &new_v_, &cu_new_}) keep_input(*b);
  } else {
    keep_input(k_);
    if (v_.data()) keep_input(v_);
  }
  fill_tokens(q_, "q", Tensor::kQ, p.type_of_q(), plan_.q_owners, p.num_heads_q,
              {a.q_stride_token, a.q_stride_head});
  out_ = GuardedBuffer(device, "out", plan_.total_q * a.out_stride_token * bytes_of(p.dtype));
  lse_ = GuardedBuffer(device, "lse", p.num_heads_q * lse_stride(plan_.total_q) * int64_t{sizeof(float)});
  cu_q_ = GuardedBuffer::of(device, "cu_seqlens_q", with_stale_sequence(plan_.cu_seqlens_q));
  if (p.kv == KvSource::kPacked)
    cu_k_ = GuardedBuffer::of(device, "cu_seqlens_k", with_stale_sequence(plan_.cu_seqlens_k));
  if (!plan_.seqused_k.empty())
    used_k_ = GuardedBuffer::of(device, "seqused_k", with_stale(plan_.seqused_k, 1));
  if (p.kv == KvSource::kPaged)
    table_ = GuardedBuffer::of(device, "block_table", with_stale(plan_.block_table, 0));
  const auto keep_if_any = [&](GuardedBuffer& b, const char* name, const auto& host) {
    if (!host.empty()) b = GuardedBuffer::of(device, name, host);
  };
  const auto stale_if_any = [](const std::vector<int32_t>& host) {
    return host.empty() ? host : with_stale(host, 0);
  };
  keep_if_any(cache_rows_, "cache_batch_idx", stale_if_any(plan_.cache_batch_idx));
  keep_if_any(leftpad_, "cache_leftpad", stale_if_any(plan_.cache_leftpad));
  keep_if_any(slopes_, "alibi_slopes", alibi_slopes_of(item_, variant));
  keep_if_any(sinks_, "sinks", sinks_of(item_));
  keep_if_any(q_descale_, "q_descale", q_descales_of(item_, plan_, variant));
  keep_if_any(k_descale_, "k_descale", k_descales_of(item_, plan_, variant));
  keep_if_any(v_descale_, "v_descale", v_descales_of(item_, variant));
  if (p.probs) {
    probs_ = GuardedBuffer(device, "probs",
                           p.num_heads_q * plan_.total_q * a.probs_stride_token * int64_t{sizeof(float)});
  }
  for (GuardedBuffer* b : {&q_, &cu_q_, &cu_k_, &used_k_, &table_, &cache_rows_, &leftpad_, &slopes_, &sinks_,
                           &q_descale_, &k_descale_, &v_descale_}) {
    if (b->data()) keep_input(*b);
  }
}

void Workload::make_scales() {
  for (const bool is_v : {false, true}) {
    if (const auto given = given_scales(item_, is_v, padded_); !given.empty()) {
      GuardedBuffer& b = is_v ? v_descale_ : k_descale_;
      b = GuardedBuffer::of(*device_, is_v ? "v_scale" : "k_scale", given);
      keep_input(b);
    }
    if (const auto before = scales_before(item_, plan_, is_v, padded_); !before.empty()) {
      (is_v ? v_scales_ : k_scales_) = GuardedBuffer::of(*device_, is_v ? "v_scales" : "k_scales", before);
    }
  }
}

void Workload::make_states() {
  const CaseParams& p = item_.params;
  const std::vector<RowOwner> owners = partial_out_owners(item_);
  const int64_t rows = static_cast<int64_t>(owners.size());
  const MergeStatesParams m = shape_params(item_, padded_).merge_states;
  partial_out_ =
      poisoned("partial_out", m.num_states * m.partial_stride_state * bytes_of(p.type_of_partial()));
  if (rows > 0) {
    const GuardedBuffer device_owners = GuardedBuffer::of(*device_, "row owners", owners);
    // Rows of all heads in turn; a block is the heads of a token, then those of a state lie wall to wall.
    FillJob job = token_job(item_, Tensor::kPartialO, p.type_of_partial(), rows, 1, p.head_dim,
                            {m.partial_stride_head, 0});
    job.block_size = m.num_heads;
    job.stride_block = m.partial_stride_token;
    job.base = partial_out_.data();
    job.owners = device_owners.as<RowOwner>();
    device_->fill(job);
    device_->synchronize();
  }
  partial_lse_ = GuardedBuffer::of(*device_, "partial_lse", partial_lse_tensor(item_));
  out_ = GuardedBuffer(*device_, "out", m.num_rows * m.out_stride_token * bytes_of(p.dtype));
  lse_ = GuardedBuffer(*device_, "lse", m.num_heads * m.out_lse_stride_head * int64_t{sizeof(float)});
  for (GuardedBuffer* b : {&partial_out_, &partial_lse_}) keep_input(*b);
}

OpParams Workload::params() const {
  OpParams op = shape_params(item_, padded_);
  if (op.op == Op::kMergeStates) {
    MergeStatesParams& m = op.merge_states;
    m.partial_out = partial_out_.data();
    m.partial_lse = partial_lse_.as<float>();
    m.out = out_.data();
    m.out_lse = lse_.as<float>();
    return op;
  }
  if (op.op == Op::kKvAppend) {
    KvAppendParams& a = op.kv_append;
    a.num_blocks = plan_.num_blocks;
    a.key = new_k_.data();
    a.value = new_v_.data();
    a.slot_mapping = slots_.as<int64_t>();
    a.positions = positions_.as<int32_t>();
    set_rotary_tables(a.rotary);
    a.k_cache = k_.data();
    a.v_cache = v_.data();
    a.k_scale.given = k_descale_.as<float>();
    a.v_scale.given = v_descale_.as<float>();
    a.k_scale.computed = k_scales_.as<float>();
    a.v_scale.computed = v_scales_.as<float>();
    return op;
  }
  AttentionParams& a = op.attention;
  a.total_q = plan_.total_q;
  a.lse_stride_head = lse_stride(plan_.total_q);
  a.probs_stride_head = a.total_q * a.probs_stride_token;
  a.num_blocks = plan_.num_blocks;
  a.q = q_.data();
  a.k = k_.data();
  a.v = item_.params.v_is_k_view ? k_.data() : v_.data();
  a.cu_seqlens_q = cu_q_.as<int32_t>();
  a.cu_seqlens_k = cu_k_.as<int32_t>();
  a.seqused_k = used_k_.as<int32_t>();
  a.block_table = table_.as<int32_t>();
  a.block_table_stride = plan_.block_table_stride;
  a.cache_batch_idx = cache_rows_.as<int32_t>();
  a.cache_leftpad = leftpad_.as<int32_t>();
  if (item_.params.append) {
    a.k_new = new_k_.data();
    a.v_new = new_v_.data();
    a.cu_seqlens_new = cu_new_.as<int32_t>();
    a.total_new = plan_.cu_seqlens_new.back();
    a.k_cache = k_.data();
    a.v_cache = v_.data();
  }
  set_rotary_tables(a.rotary);
  a.alibi_slopes = slopes_.as<float>();
  a.sinks = sinks_.as<float>();
  a.q_descale = q_descale_.as<float>();
  a.k_descale = k_descale_.as<float>();
  a.v_descale = v_descale_.as<float>();
  a.out = out_.data();
  a.lse = lse_.as<float>();
  a.probs = probs_.as<float>();
  return op;
}

void Workload::set_rotary_tables(RotaryParams& r) const {
  r.cos = rotary_cos_.as<float>();
  r.sin = rotary_sin_.as<float>();
  r.positions = rotary_positions_;
}

void Workload::take_inputs_of(const Workload& other) {
  for (const bool is_v : {false, true}) {
    GuardedBuffer& cache = is_v ? v_ : k_;
    if ((is_v ? other.v_ : other.k_).bytes() > cache.bytes())
      throw std::logic_error("no room for other keys");
    if (is_v && other.item_.params.v_is_k_view) continue;
    FillJob job = other.cache_job(is_v);
    job.base = cache.data();
    job.owners = other.kv_owners_.as<RowOwner>();
    device_->fill(job);
  }
  device_->synchronize();
  std::vector<unsigned char> host;
  const auto take = [&](GuardedBuffer& to, const GuardedBuffer& from) {
    if (from.bytes() > to.bytes()) throw std::logic_error("no room for other " + to.name());
    if (from.bytes() == 0) return;
    host.resize(static_cast<std::size_t>(from.bytes()));
    device_->download(host.data(), from.data(), from.bytes());
    device_->upload(to.data(), host.data(), from.bytes());
  };
  take(q_, other.q_);
  take(cu_q_, other.cu_q_);
  take(cu_k_, other.cu_k_);
  take(used_k_, other.used_k_);
  take(table_, other.table_);
  take(cache_rows_, other.cache_rows_);
  take(leftpad_, other.leftpad_);
  take(slopes_, other.slopes_);
  take(q_descale_, other.q_descale_);
  take(k_descale_, other.k_descale_);
  take(v_descale_, other.v_descale_);
  for (Input& i : inputs_) i.digest = device_->digest(i.buffer->data(), i.buffer->bytes());
}

void Workload::reset_outputs() {
  if (writes_cache(item_.params)) {
    for (const bool is_v : {false, true}) {
      GuardedBuffer& cache = is_v ? v_ : k_;
      if (padded_ && cache.bytes() > 0) device_->set_bytes(cache.data(), 0xff, cache.bytes());
      fill_cache(cache, is_v);
    }
    for (const bool is_v : {false, true}) {
      GuardedBuffer& scales = is_v ? v_scales_ : k_scales_;
      const auto before = scales_before(item_, plan_, is_v, padded_);
      if (!before.empty()) device_->upload(scales.data(), before.data(), scales.bytes());
    }
  }
  if (item_.params.op != Op::kKvAppend) {
    device_->set_bytes(out_.data(), 0xff, out_.bytes());
    device_->set_bytes(lse_.data(), 0xff, lse_.bytes());
    if (probs_.bytes() > 0) device_->set_bytes(probs_.data(), 0xff, probs_.bytes());
  }
  device_->synchronize();
}

HostOutputs Workload::download_outputs() const {
  HostOutputs h;
  const auto fetch = [&](auto& host, const GuardedBuffer& b) {
    try {
      host.resize(static_cast<std::size_t>(b.bytes()) / sizeof(host[0]));
    } catch (const std::bad_alloc&) {
      throw TooLarge("not enough host memory for a copy of " + b.name());
    }
    if (b.bytes() > 0) device_->download(host.data(), b.data(), b.bytes());
  };
  if (writes_cache(item_.params)) {
    fetch(h.k_cache, k_);
    fetch(h.v_cache, v_);
    fetch(h.k_scales, k_scales_);
    fetch(h.v_scales, v_scales_);
  }
  if (item_.params.op != Op::kKvAppend) {
    if (item_.params.append) take_new_keys(h);
    fetch(h.out, out_);
    fetch(h.lse, lse_);
    fetch(h.probs, probs_);
    if (padded_) drop_padding(h);
    if (item_.params.op == Op::kAttention) drop_lead_rows(h, plan_.cu_seqlens_q.front(), plan_.total_q);
  }
  return h;
}

/// Outputs wall to wall, as verification reads them.
void Workload::drop_padding(HostOutputs& h) const {
  const OpParams op = params();
  const AttentionParams& a = op.attention;
  const MergeStatesParams& m = op.merge_states;
  const bool merges = op.op == Op::kMergeStates;
  const int64_t heads = item_.params.num_heads_q;
  const int64_t rows = merges ? m.num_rows : a.total_q;
  const int64_t e = bytes_of(item_.params.dtype);
  const TokenStrides out = merges ? TokenStrides{m.out_stride_token, m.out_stride_head}
                                  : TokenStrides{a.out_stride_token, a.out_stride_head};
  const int64_t width = merges ? m.head_dim : a.head_dim_v;
  h.out = without_padding(std::move(h.out), {rows, out.token * e, heads, out.head * e, width * e}, "out",
                          h.stray);
  const int64_t lse = merges ? m.out_lse_stride_head : a.lse_stride_head;
  h.lse = without_padding(std::move(h.lse), {heads, lse, 1, 0, rows}, "lse", h.stray);
  if (probs_.bytes() == 0) return;
  h.probs = without_padding(std::move(h.probs),
                            {heads, a.probs_stride_head, rows, a.probs_stride_token, int64_t{a.max_seqlen_k}},
                            "probs", h.stray);
}

/// Copies the new keys out of the downloaded cache, in the order of their tokens.
void Workload::take_new_keys(HostOutputs& h) const {
  const FillJob job = cache_job(false);
  const std::size_t row_bytes = static_cast<std::size_t>(job.head_dim) * dtype_size(job.dtype);
  for (const int64_t slot : plan_.slot_mapping) {
    if (slot < 0) continue;
    for (int32_t head = 0; head < job.num_heads; ++head) {
      const auto at = h.k_cache.begin() + fill_offset(job, slot, head) * bytes_of(job.dtype);
      h.new_k.insert(h.new_k.end(), at, at + static_cast<std::ptrdiff_t>(row_bytes));
    }
  }
}

uint64_t Workload::outputs_digest() const {
  const auto digest = [&](const GuardedBuffer& b) {
    return b.data() ? device_->digest(b.data(), b.bytes()) : 0;
  };
  const uint64_t cache = writes_cache(item_.params) ? digest(k_) * 3 + digest(v_) : 0;
  const uint64_t scales = digest(k_scales_) * 11 + digest(v_scales_) * 13;
  return (digest(out_) * 3 + digest(lse_)) * 5 + cache + scales + digest(probs_) * 7;
}

std::optional<std::string> Workload::guard_damage() const {
  for (const GuardedBuffer* b :
       {&q_,         &k_,      &v_,           &out_,         &lse_,       &new_k_,      &new_v_,
        &slots_,     &cu_q_,   &cu_k_,        &used_k_,      &table_,     &cache_rows_, &leftpad_,
        &slopes_,    &sinks_,  &q_descale_,   &k_descale_,   &v_descale_, &rotary_cos_, &rotary_sin_,
        &positions_, &cu_new_, &partial_out_, &partial_lse_, &probs_,     &k_scales_,   &v_scales_}) {
    if (auto damage = b->damage()) return damage;
  }
  return std::nullopt;
}

std::optional<std::string> Workload::input_damage() const {
  for (const Input& i : inputs_) {
    if (device_->digest(i.buffer->data(), i.buffer->bytes()) != i.digest) {
      return "input " + i.buffer->name() + " was overwritten";
    }
  }
  return std::nullopt;
}

}  // namespace attnbench
