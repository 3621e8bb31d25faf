// A small attention problem, for tests of the cpu kernel. Values are functions of (tensor, sequence id,
// position, head, channel), so one logical problem can have several layouts.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/common/checks.h"
#include "kernels/contract/dtype.h"

namespace attnbench::testing {

struct Seq {
  int q;
  int k;
  int id = -1;  ///< sequence whose values it has; -1: the index in the batch
};

enum class Cache { kNone, kRows, kIndexed };  ///< contiguous: in order, or shuffled with left padding
enum class Slopes { kNone, kPerHead, kPerSequence };

struct Problem {
  std::vector<Seq> seqs;
  int heads_q = 2;
  int heads_kv = 2;
  int dim = 64;
  int dim_v = 0;        ///< 0: dim
  bool v_is_k = false;  ///< V is a view of K
  bool qv = false;      ///< a second query that is multiplied with V
  DType dtype = DType::kFp32;
  DType dtype_out = DType::kFp32;
  int block_size = 0;  ///< 0: packed
  bool hnd = false;
  bool gaps = false;  ///< packed: slots are longer than the sequences (seqused_k)
  bool causal = false;
  int window_left = -1;
  int window_right = -1;
  int attention_chunk = 0;
  bool custom_mask = false;  ///< bits by `sees`
  int topk = 0;              ///< entries of a list of keys; 0: no lists. Enough for the keys by `lists`
  bool lse_base2 = false;
  bool lse_token_major = false;
  float softcap = 0.0f;
  float scale = 0.0f;  ///< 0: 1 / sqrt(dim)
  bool zero_scale = false;
  float magnitude = 1.0f;  ///< factor of q
  int q_begin = 0;         ///< cu_seqlens_q[0]
  unsigned shuffle = 1;    ///< seed for the order of pages and cache rows
  Cache cache = Cache::kNone;
  Slopes alibi = Slopes::kNone;
  float slope_factor = 1.0f;
  bool alibi_sqrt = false;
  bool sinks = false;
  float sink_shift = 0.0f;  ///< added to each sink
  uint64_t quantised = 0;  ///< kE4m3Kv, kE5m2Kv, kE4m3Q, kInt8Q, kInt8K, kInt8V, kKTokenScales, kVTokenScales
  float k_descale_factor = 1.0f;
  int q_shared = 1, k_shared = 1;  ///< rows of int8 q, and keys, that share a descale
  float p_dropout = 0.0f;
  bool probs = false;

  int dv() const { return dim_v == 0 ? dim : dim_v; }
  bool fp8_kv() const { return (quantised & (kE4m3Kv | kE5m2Kv)) != 0; }
  uint64_t base() const { return dtype_feature(dtype); }
  InputDTypes types() const { return input_dtypes(base() | quantised); }
  DType type_of(uint64_t tensor) const {
    return tensor == 0 || tensor == 3 ? types().q : tensor == 1 || v_is_k ? types().k : types().v;
  }
  bool k_rows() const { return (quantised & (kInt8K | kKTokenScales)) != 0; }
  /// Index of the first descale of each sequence; before them there is a NaN.
  std::vector<int32_t> descale_begins(bool of_q) const {
    std::vector<int32_t> begins = {1};
    const int shared = of_q ? q_shared : k_shared;
    for (const Seq& s : seqs) begins.push_back(begins.back() + ((of_q ? s.q : s.k) + shared - 1) / shared);
    return begins;
  }
  bool v_rows() const { return (quantised & kVTokenScales) != 0; }
  // Descales of position `pos` of sequence `id`. Neighbours differ, and no two tensors share one. e4m3 and
  // e5m2 have one per sequence and KV head, or per row. Stored numbers reach 8 in these and 127 in int8.
  float q_descale(uint64_t id, int pos, int head) const {
    pos /= q_shared;
    if (quantised & kInt8Q) return 0.004f + 0.0007f * static_cast<float>((id * 5 + pos * 7 + head * 3) % 11);
    const int kv_head = head / (heads_q / heads_kv);
    return quantised & kE4m3Q ? 0.07f + 0.011f * static_cast<float>((id * 7 + kv_head * 5) % 16) : 1.0f;
  }
  float k_descale(uint64_t id, int pos, int head) const {
    pos /= k_shared;
    const float fp8 =
        0.08f + 0.013f * static_cast<float>((id * 5 + (k_rows() ? pos * 7 : 0) + head * 3) % 16);
    const float int8 = 0.005f + 0.0009f * static_cast<float>((id * 3 + pos * 5 + head * 7) % 13);
    return k_descale_factor * (fp8_kv() ? fp8 : quantised & kInt8K ? int8 : 1.0f);
  }
  float v_descale(uint64_t id, int pos, int head, int channel) const {
    if (v_is_k) return k_descale(id, pos, head);
    const int of_row = v_rows() ? static_cast<int>(id * 5) + pos * 7 : 0;
    if (quantised & kInt8V)
      return 0.003f + 0.0011f * static_cast<float>((head * 3 + (v_rows() ? of_row : channel * 5)) % 9);
    return fp8_kv() ? 0.05f + 0.017f * static_cast<float>((id * 3 + of_row + head * 7) % 16) : 1.0f;
  }
  /// The custom mask of sequence `id`: about two thirds of the bits. Every seventh query sees no key.
  bool sees(uint64_t id, int i, int j) const {
    return !custom_mask ||
           (i % 7 != 5 && (static_cast<uint64_t>(i) * 31 + static_cast<uint64_t>(j) * 17 + id * 7) % 23 < 15);
  }
  /// Whether the list of query i and a KV head names a key that the other masks show. Every fifth list is empty.
  bool lists(uint64_t id, int i, int kv_head, int j) const {
    const uint64_t of_list = id * 5 + static_cast<uint64_t>(i) * 3 + static_cast<uint64_t>(kv_head) * 7;
    return topk == 0 || (of_list % 5 != 4 && (of_list + static_cast<uint64_t>(j) * 11) % 9 < 4);
  }
  /// Whether the causal mask, the window and the chunk show query i of a sequence key j.
  bool in_interval(const Seq& s, int i, int j) const {
    const int64_t diagonal = int64_t{i} + s.k - s.q;
    const int64_t right = causal ? 0 : window_right;
    const int64_t chunk = attention_chunk;
    return (window_left < 0 || j >= diagonal - window_left) && (right < 0 || j <= diagonal + right) &&
           (chunk == 0 || (diagonal >= 0 && j / chunk == diagonal / chunk));
  }
  bool paged() const { return block_size > 0; }
  bool contiguous() const { return cache != Cache::kNone; }
  /// ALiBi slope of sequence `id`. One head has slope 0, another a negative slope.
  float slope(uint64_t id, int head) const {
    const float of_sequence = alibi == Slopes::kPerSequence ? 0.013f * static_cast<float>(id) : 0.0f;
    return slope_factor * (head == 1 ? 0.0f : head == 3 ? -0.001f : 0.3f / (head + 1) + of_sequence);
  }
  /// Every fifth head has no sink: -inf.
  float sink(int head) const {
    return head % 5 == 4 ? -std::numeric_limits<float>::infinity() : 0.7f * head - 1.3f + sink_shift;
  }
  float softmax_scale() const {
    return zero_scale ? 0.0f : scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(dim));
  }
};

/// The stored number: uniform in [-1, 1), for e4m3 and e5m2 in [-8, 8), for int8 in [-127, 127), rounded to the
/// tensor's dtype. Tensors are q, K, V, qv.
inline float value(const Problem& p, uint64_t tensor, uint64_t seq, uint64_t pos, uint64_t head,
                   uint64_t channel) {
  if (tensor == 2 && p.v_is_k) tensor = 1;
  uint64_t x = (((tensor * 1000003 + seq) * 1000003 + pos) * 1009 + head) * 1009 + channel;
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  const float uniform = static_cast<float>(x >> 40) * 0x1p-23f - 1.0f;
  const DType t = p.type_of(tensor);
  const float range = is_fp8(t) ? 8.0f : t == DType::kInt8 ? 127.0f : 1.0f;
  return round_to(t, uniform * range * (tensor == 0 || tensor == 3 ? p.magnitude : 1.0f));
}

inline constexpr DType kDTypes[] = {DType::kBf16, DType::kFp16, DType::kFp32};
inline constexpr uint64_t kDropoutSeed = 0x123456789abcdefull;
inline constexpr uint64_t kDropoutOffset = 0x500000007ull;

/// O (total_q, Hq, Dv), LSE (Hq, total_q) and probabilities (Hq, total_q, longest key length). Rows count
/// without q_begin.
struct Result {
  std::vector<float> out;
  std::vector<float> lse;
  std::vector<float> probs;
  bool operator==(const Result& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
    };
    return same(out, other.out) && same(lse, other.lse) && same(probs, other.probs);
  }
};

/// All bits 1 is NaN in every floating type. int8 has no NaN; its poison is its least number.
inline std::vector<uint8_t> poisoned(DType t, int64_t elements) {
  return std::vector<uint8_t>(static_cast<std::size_t>(elements) * dtype_size(t),
                              t == DType::kInt8 ? 0x80 : 0xff);
}

/// In elements.
struct Strides {
  int64_t block = 0, token = 0, head = 0;
};

}  // namespace attnbench::testing
