#include "kernels/cpu/append.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/addressing.h"
#include "kernels/common/descale.h"
#include "kernels/common/rotary.h"
#include "kernels/cpu/cpu_kernels.h"

namespace attnbench::cpu {
namespace {

/// Checks that the rotary tables have a row for each position of the keys and queries of sequence `b`.
KernelStatus check_positions(const AttentionParams& p, int32_t b, KernelMessage* message) {
  const SeqRange seq = seq_range(p, b);
  const int64_t first = query_position(p, b, seq, 0);
  const int64_t last_query = seq.q_len > 0 ? query_position(p, b, seq, seq.q_len - 1) : -1;
  const int64_t last = std::max<int64_t>(last_query, seq.k_len - 1);
  if (first >= 0 && last < p.rotary.positions) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kBadArgument,
                "%s: sequence %d: queries and keys at positions 0..%d of the rotary tables required, given "
                "%lld..%lld",
                kAttention.name, b, p.rotary.positions - 1, static_cast<long long>(first),
                static_cast<long long>(last));
}

KernelStatus check_sequence(const AttentionParams& p, int32_t b, KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kAttention.name, b, args...);
  };
  const SeqRange seq = seq_range(p, b);
  const int32_t added = new_len(p, b);
  if (added < 0 || added > seq.k_len) {
    return bad("%s: sequence %d: 0..%d new tokens required, as seqused_k counts them, given %d", seq.k_len,
               added);
  }
  const int64_t leftpad = p.cache_leftpad != nullptr ? p.cache_leftpad[b] : 0;
  const int64_t capacity = kv_capacity(p);
  if (leftpad + seq.k_len > capacity) {
    return bad("%s: sequence %d: a cache of %lld tokens required for its keys with the new ones, given %lld",
               static_cast<long long>(leftpad + seq.k_len), static_cast<long long>(capacity));
  }
  for (int32_t row = seq.k_len - added; row < seq.k_len; ++row) {
    const bool paged = (p.features & kPagedKv) != 0;
    const int32_t block = paged ? p.block_table[table_entry(p, b, padded_row(p, b, row))] : cache_row(p, b);
    if (block < 0 || block >= p.num_blocks) {
      return bad("%s: sequence %d: new row %d in %s 0..%d required, given %d", row,
                 paged ? "block" : "cache row", p.num_blocks - 1, block);
    }
  }
  if (!(p.features & kRotary) || (seq.q_len == 0 && added == 0)) return KernelStatus::kOk;
  return check_positions(p, b, message);
}

/// One row of new keys or values, and its place in the cache. Offsets are in elements.
struct NewRow {
  const void* from;
  int64_t from_at;
  DType type;
  void* cache;
  int64_t cache_at;
  DType cache_type;
  bool turns;
};

/// Copies a row, or turns it to `position` and divides it by descale(c).
template <class Descale>
void write_row(const AttentionParams& p, const NewRow& r, int32_t position, const Descale& descale) {
  const bool quantises = r.type != r.cache_type;
  const auto size = static_cast<int64_t>(dtype_size(r.type));
  if (!r.turns && !quantises) {
    std::memcpy(static_cast<char*>(r.cache) + r.cache_at * size,
                static_cast<const char*>(r.from) + r.from_at * size,
                static_cast<std::size_t>(p.head_dim * size));
    return;
  }
  const auto load = [&](int32_t c) { return load_float(r.type, r.from, r.from_at + c); };
  for (int32_t c = 0; c < p.head_dim; ++c) {
    const float x = r.turns ? rotated(p.rotary, position, c, load) : load(c);
    store_float(r.cache_type, r.cache, r.cache_at + c, quantises ? x / descale(c) : x);
  }
}

/// Writes new token `i` of sequence `b`, all heads, to cache row `row`.
void append_token(const AttentionParams& p, int32_t b, int32_t i, int32_t row) {
  const int64_t token = int64_t{p.cu_seqlens_new[b]} + i;
  for (int32_t h = 0; h < p.num_heads_kv; ++h) {
    const NewRow k{p.k_new,
                   token * p.k_new_stride_token + h * p.k_new_stride_head,
                   k_new_type(p),
                   p.k_cache,
                   k_row_offset(p, b, row) + h * p.k_stride_head,
                   p.dtype_k,
                   (p.features & kRotary) != 0};
    const NewRow v{p.v_new,   token * p.v_new_stride_token + h * p.v_new_stride_head, v_new_type(p),
                   p.v_cache, v_row_offset(p, b, row) + h * p.v_stride_head,          p.dtype_v,
                   false};
    write_row(p, k, row, [&](int32_t) { return k_descale(p, b, h) * row_descale(p, false, b, row, h); });
    write_row(p, v, row, [&](int32_t c) { return v_descale(p, b, h, c) * row_descale(p, true, b, row, h); });
  }
}

}  // namespace

KernelStatus check_cached_positions(const AttentionParams& p, KernelMessage* message) {
  for (int32_t b = 0; b < p.batch; ++b) {
    if (seq_range(p, b).q_len == 0) continue;  // none of its keys is read
    if (const KernelStatus s = check_positions(p, b, message); s != KernelStatus::kOk) return s;
  }
  return KernelStatus::kOk;
}

KernelStatus append_new_rows(const AttentionParams& p, int threads, KernelMessage* message) {
  for (int32_t b = 0; b < p.batch; ++b) {
    if (const KernelStatus s = check_sequence(p, b, message); s != KernelStatus::kOk) return s;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int32_t b = 0; b < p.batch; ++b) {
    const int32_t added = new_len(p, b);
    const int32_t first = seq_range(p, b).k_len - added;
    for (int32_t i = 0; i < added; ++i) append_token(p, b, i, first + i);
  }
  return KernelStatus::kOk;
}

}  // namespace attnbench::cpu
