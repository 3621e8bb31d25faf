#include "tests/faults/wraps.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/common/addressing.h"
#include "kernels/common/checks.h"
#include "kernels/common/checks_append.h"
#include "kernels/common/checks_move.h"
#include "kernels/common/mask.h"
#include "kernels/common/score.h"

namespace attnbench::faults {
namespace {

enum class Cut { kBlock, kBlockId, kCacheRow, kToken, kOutput, kSequence, kKey, kHead, kPackedRow };

template <class Word>
int64_t cut(bool wrong, int64_t x) {
  return wrong ? static_cast<int64_t>(static_cast<Word>(x)) : x;
}

/// The element at which key `j` of sequence `b` begins, KV head 0.
template <Cut kCut>
int64_t key_offset(const AttentionParams& p, int32_t b, int32_t j, int64_t block, int64_t token) {
  if (p.features & kPagedKv) {
    const int64_t id = cut<uint16_t>(kCut == Cut::kBlockId, p.block_table[table_entry(p, b, j)]);
    return cut<uint32_t>(kCut == Cut::kBlock, id * block) + j % p.block_size * token;
  }
  if (p.features & kContiguousKv)
    return cut<int32_t>(kCut == Cut::kCacheRow, cache_row(p, b) * block) + j * token;
  return cut<uint32_t>(kCut == Cut::kToken, (int64_t{p.cu_seqlens_k[b]} + j) * token);
}

template <Cut kCut>
void attend(const AttentionParams& p, int32_t b, int32_t i, int32_t head) {
  const SeqRange seq = seq_range(p, b);
  const KeyBounds keys = visible_keys(p, i, seq.q_len, seq.k_len);
  const auto of = static_cast<int32_t>(cut<uint16_t>(kCut == Cut::kSequence, b));
  const int32_t ratio = p.num_heads_q / p.num_heads_kv;
  const auto kv_head = static_cast<int32_t>(cut<uint8_t>(kCut == Cut::kHead, head)) / ratio;
  const int64_t row = cut<uint16_t>(kCut == Cut::kPackedRow, int64_t{i} * ratio + head % ratio);
  const int64_t q =
      q_offset(p, seq.q_begin + row / ratio, head / ratio * ratio + static_cast<int32_t>(row % ratio));
  std::vector<float> out(static_cast<std::size_t>(p.head_dim_v));
  float max = -INFINITY, sum = 0;
  for (int32_t j = keys.begin; j < keys.end; ++j) {
    const auto key = static_cast<int32_t>(cut<uint16_t>(kCut == Cut::kKey, j));
    const int64_t k =
        key_offset<kCut>(p, of, key, p.k_stride_block, p.k_stride_token) + kv_head * p.k_stride_head;
    const int64_t v =
        key_offset<kCut>(p, of, key, p.v_stride_block, p.v_stride_token) + kv_head * p.v_stride_head;
    float dot = 0;
    for (int32_t c = 0; c < p.head_dim; ++c)
      dot += load_float(p.dtype_q, p.q, q + c) * load_float(p.dtype_k, p.k, k + c);
    const float score = dot * p.softmax_scale, top = std::max(max, score);
    const float kept = std::exp(max - top), weight = std::exp(score - top);
    for (int32_t c = 0; c < p.head_dim_v; ++c) {
      float& x = out[static_cast<std::size_t>(c)];
      x = x * kept + weight * load_float(p.dtype_v, p.v, v + c);
    }
    sum = sum * kept + weight;
    max = top;
  }
  const int64_t to = seq.q_begin + i;
  for (int32_t c = 0; c < p.head_dim_v; ++c)
    store_float(p.dtype_out, p.out, cut<uint32_t>(kCut == Cut::kOutput, out_offset(p, to, head) + c),
                sum == 0 ? 0.0f : out[static_cast<std::size_t>(c)] / sum);
  p.lse[lse_offset(p, to, head)] = lse_of(max, sum);
}

template <Cut kCut>
KernelStatus attend_all(const OpParams* op, const LaunchContext*, KernelMessage*) {
  const AttentionParams& p = op->attention;
  for (int32_t b = 0; b < p.batch; ++b) {
    for (int32_t i = 0; i < seq_range(p, b).q_len; ++i) {
      for (int32_t head = 0; head < p.num_heads_q; ++head) attend<kCut>(p, b, i, head);
    }
  }
  return KernelStatus::kOk;
}

/// Copies a row of each head, from element `from` to element `to`.
void copy_heads(int32_t heads, int64_t bytes, int64_t size, const void* from, int64_t at, int64_t head_from,
                void* to, int64_t at_to, int64_t head_to) {
  for (int32_t h = 0; h < heads; ++h)
    std::memcpy(static_cast<char*>(to) + (at_to + h * head_to) * size,
                static_cast<const char*>(from) + (at + h * head_from) * size,
                static_cast<std::size_t>(bytes));
}

KernelStatus append(const OpParams* op, const LaunchContext*, KernelMessage*) {
  const KvAppendParams& p = op->kv_append;
  const auto size = static_cast<int64_t>(dtype_size(p.dtype_in));
  const auto offset = [&](int64_t slot, int64_t block, int64_t token) {
    return cut<uint32_t>(true, slot / p.block_size * block + slot % p.block_size * token);
  };
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    const int64_t slot = p.slot_mapping[t];
    if (slot < 0) continue;
    copy_heads(p.num_heads_kv, p.head_dim * size, size, p.key, t * p.key_stride_token, p.key_stride_head,
               p.k_cache, offset(slot, p.k_stride_block, p.k_stride_token), p.k_stride_head);
    copy_heads(p.num_heads_kv, p.head_dim * size, size, p.value, t * p.value_stride_token,
               p.value_stride_head, p.v_cache, offset(slot, p.v_stride_block, p.v_stride_token),
               p.v_stride_head);
  }
  return KernelStatus::kOk;
}

KernelStatus move(const OpParams* op, const LaunchContext*, KernelMessage*) {
  const KvMoveParams& p = op->kv_move;
  const auto size = static_cast<int64_t>(dtype_size(p.dtype_k));
  const int64_t row = p.head_dim * size;
  for (int64_t i = 0; i < p.num_pairs; ++i) {
    const int64_t from = p.block_pairs[2 * i], to = p.block_pairs[2 * i + 1];
    for (int64_t r = 0; r < p.block_size; ++r) {
      copy_heads(p.num_heads_kv, row, size, p.k_src,
                 cut<uint32_t>(true, from * p.k_src_stride_block) + r * p.k_src_stride_token,
                 p.k_src_stride_head, p.k_dst, to * p.k_dst_stride_block + r * p.k_dst_stride_token,
                 p.k_dst_stride_head);
      copy_heads(p.num_heads_kv, row, size, p.v_src, from * p.v_src_stride_block + r * p.v_src_stride_token,
                 p.v_src_stride_head, p.v_dst, to * p.v_dst_stride_block + r * p.v_dst_stride_token,
                 p.v_dst_stride_head);
    }
  }
  return KernelStatus::kOk;
}

Numerics numerics(const OpParams*) {
  return {.p_type = DType::kFp32, .acc_type = DType::kFp32, .exp_rel_err = 0x1p-23};
}

template <uint64_t kFeatures>
KernelStatus supports(const OpParams* op, const LaunchContext*, KernelMessage* m) {
  const uint64_t more = features_of(*op) & ~kFeatures;
  return more == 0 ? KernelStatus::kOk
                   : refuse(m, KernelStatus::kUnsupported, "features 0x%llx",
                            static_cast<unsigned long long>(more));
}

template <uint64_t kFeatures>
Kernel kernel(const char* name, const char* summary, Op op,
              KernelStatus (*launch)(const OpParams*, const LaunchContext*, KernelMessage*)) {
  return {.abi_version = kKernelAbiVersion,
          .flags = kDeterministic | kBatchInvariant,
          .name = name,
          .summary = summary,
          .shapes = "any",
          .op = op,
          .device = DeviceKind::kCpu,
          .min_compute_capability = 0,
          .features = kFeatures,
          .supports = supports<kFeatures>,
          .numerics = numerics,
          .workspace_bytes = [](const OpParams*, const LaunchContext*) { return std::size_t{0}; },
          .plan = nullptr,
          .launch = launch};
}

constexpr uint64_t kAttends =
    kPackedKv | kPagedKv | kContiguousKv | kPartialKv | kSequsedQ | kCausal | kWindow | kBf16;

template <Cut kCut>
Kernel attention(const char* name, const char* summary) {
  return kernel<kAttends>(name, summary, Op::kAttention, attend_all<kCut>);
}

}  // namespace

std::vector<Kernel> wrapping_kernels() {
  return {
      attention<Cut::kBlock>("wraps_block", "fault: block x stride in 32 bits"),
      attention<Cut::kBlockId>("wraps_block_id", "fault: block ids in 16 bits"),
      attention<Cut::kCacheRow>("wraps_cache_row", "fault: cache row x stride in 32 bits"),
      attention<Cut::kToken>("wraps_token", "fault: token x stride in 32 bits"),
      attention<Cut::kOutput>("wraps_output", "fault: offsets in O in 32 bits"),
      attention<Cut::kSequence>("wraps_sequence", "fault: index of a sequence in 16 bits"),
      attention<Cut::kKey>("wraps_key", "fault: index of a key in 16 bits"),
      attention<Cut::kHead>("wraps_head", "fault: index of a head in 8 bits"),
      attention<Cut::kPackedRow>("wraps_packed_row", "fault: index of (query, head of a group) in 16 bits"),
      kernel<kPagedKv | kBf16>("wraps_slot", "fault: slot x stride in 32 bits", Op::kKvAppend, append),
      kernel<kPagedKv | kBf16>("wraps_move", "fault: block x stride in 32 bits", Op::kKvMove, move)};
}

}  // namespace attnbench::faults
