// Faults of what else turns: queries that kv_append returns, by positions of 64 bits too, and keys that turn when
// they are read.
#include <algorithm>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define QUERY_APPEND "{op: kv_append, dtype: bf16, heads: 4/2, head_dim: 64, block_size: 16, "
#define QUERY_BATCH "batch: q5s21_q1s40_q16s16}"
constexpr const char* kQueryTurned =
    QUERY_APPEND "query_out: same, rotary: neox, padding_tokens: 3, " QUERY_BATCH;
constexpr const char* kQueryInE4m3 =
    QUERY_APPEND "query_out: e4m3, rotary: neox, padding_tokens: 3, " QUERY_BATCH;
constexpr const char* kQueryCopied = QUERY_APPEND "query_out: same, padding_tokens: 3, " QUERY_BATCH;
constexpr const char* kPositionsOf64 = QUERY_APPEND "rotary: neox, positions: int64, " QUERY_BATCH;

#define CACHED "heads: 4/2, head_dim: 64, mask: causal, rotary_cached: true, batch: q3s40_q5s33}"
constexpr const char* kNeoxCached = "{kv: paged, block_size: 16, dtype: bf16, rotary: neox, " CACHED;
constexpr const char* kPairsCached = "{kv: paged, block_size: 16, dtype: fp16, rotary: interleaved, " CACHED;

/// Keys of the cache turn to position_of(p, j), not to j; -1: they do not turn. Their copy is turned by the
/// difference, so that the right kernel turns them to that position.
Tamper::Fault keys_turned_to(const std::function<int64_t(const AttentionParams&, int64_t j)>& position_of) {
  return with_params([position_of](Tamper& t, AttentionParams& p) {
    const HostView view(t, p);
    const RotaryParams& r = p.rotary;
    const int64_t half = r.dim / 2;
    const auto cos = t.read<float>(r.cos, r.positions * half), sin = t.read<float>(r.sin, r.positions * half);
    std::vector<unsigned char> k = view.k;
    const auto turn = [&](int64_t row, int64_t position, double sign) {
      for (int64_t i = 0; i < half; ++i) {
        const int64_t first = row + (r.interleaved ? 2 * i : i);
        const int64_t second = row + (r.interleaved ? 2 * i + 1 : i + half);
        const double c = static_cast<double>(cos[static_cast<std::size_t>(position * half + i)]);
        const double s = sign * static_cast<double>(sin[static_cast<std::size_t>(position * half + i)]);
        const auto a = static_cast<double>(load_float(p.dtype_k, k.data(), first));
        const auto b = static_cast<double>(load_float(p.dtype_k, k.data(), second));
        store_float(p.dtype_k, k.data(), first, static_cast<float>(a * c - b * s));
        store_float(p.dtype_k, k.data(), second, static_cast<float>(a * s + b * c));
      }
    };
    for (int b = 0; b < p.batch; ++b) {
      for (int64_t j = 0; j < view.k_len(b); ++j) {
        const int64_t position = position_of(p, j);
        for (int32_t h = 0; h < p.num_heads_kv; ++h) {
          const int64_t row = view.kv_offset(b, j, h, false);
          if (position >= 0) turn(row, position, 1);
          turn(row, j, -1);
        }
      }
    }
    p.k = t.put(k);
  });
}

/// Tokens of a block, in packed launches of the same case, too.
int64_t block_of(const AttentionParams& p) { return p.block_size > 0 ? p.block_size : 16; }

int64_t query_bytes(const KvAppendParams& p) {
  return p.num_tokens * p.query_out_stride_token * static_cast<int64_t>(dtype_size(p.dtype_query_out));
}

/// A right launch whose queries are those of a launch with other parameters.
Tamper::Fault with_queries_of(const std::function<void(Tamper&, KvAppendParams&)>& change) {
  return [change](Tamper& t, const OpParams& op) {
    OpParams other = op;
    change(t, other.kv_append);
    if (const KernelStatus s = t.launch(other); s != KernelStatus::kOk) return s;
    const auto queries = t.read<unsigned char>(op.kv_append.query_out, query_bytes(op.kv_append));
    const KernelStatus s = t.launch(op);
    t.write(op.kv_append.query_out, queries);
    return s;
  };
}

/// Each row of a padding token holds its query.
void write_padding(Tamper& t, const KvAppendParams& p) {
  const auto slots = t.read<int64_t>(p.slot_mapping, p.num_tokens);
  const auto size = static_cast<int64_t>(dtype_size(p.dtype_in));
  for (int64_t i = 0; i < p.num_tokens; ++i) {
    if (slots[static_cast<std::size_t>(i)] >= 0) continue;
    for (int32_t h = 0; h < p.num_heads_q; ++h) {
      const int64_t from = (i * p.query_stride_token + h * p.query_stride_head) * size;
      const int64_t to = (i * p.query_out_stride_token + h * p.query_out_stride_head) * size;
      t.write(static_cast<char*>(p.query_out) + to,
              t.read<unsigned char>(static_cast<const char*>(p.query) + from, p.head_dim * size));
    }
  }
}

}  // namespace

FaultClass cached_rotary_faults() {
  return {"keys that turn when read",
          {{"cached_keys_not_turned",
            "queries turn, and keys are taken as they lie",
            {kNeoxCached, kPairsCached},
            keys_turned_to([](const AttentionParams&, int64_t) { return int64_t{-1}; }),
            {"rotary_cached"},
            "keys of the cache are not turned"},
           {"cached_keys_at_the_start_of_their_block",
            "all keys of a block turn to the position of its first",
            {kNeoxCached, kPairsCached},
            keys_turned_to([](const AttentionParams& p, int64_t j) { return j - j % block_of(p); }),
            {},
            "the position of the first of their page"},
           {"cached_keys_by_their_row_in_the_block",
            "positions begin at 0 in each block",
            {kPairsCached, kNeoxCached},
            keys_turned_to([](const AttentionParams& p, int64_t j) { return j % block_of(p); }),
            {},
            "begin at 0 in each page"}}};
}

FaultClass query_faults() {
  return {
      "returned queries",
      {{"query_not_turned",
        "queries are returned as they come",
        {kQueryTurned, kQueryInE4m3},
        with_queries_of([](Tamper&, KvAppendParams& p) { p.features &= ~uint64_t{kRotary | kPositions64}; }),
        {"query_out: same"},
        "queries are not turned"},
       {"query_turned_at_its_index",
        "queries turn to the index of their token in the launch, not to its position",
        {kQueryTurned, kQueryInE4m3},
        with_queries_of([](Tamper& t, KvAppendParams& p) {
          std::vector<int32_t> index;
          for (int32_t i = 0; i < p.num_tokens; ++i) index.push_back(std::min(i, p.rotary.positions - 1));
          p.positions = t.put(index);
          p.features &= ~uint64_t{kPositions64};
        }),
        {"query_out: same"},
        "queries turn to the index of their token"},
       {"query_heads_reversed",
        "query head h is that of the h-th from the last",
        {kQueryCopied, kQueryInE4m3},
        with_append([](Tamper&, KvAppendParams& p) {
          p.query = static_cast<const char*>(p.query) +
                    (p.num_heads_q - 1) * p.query_stride_head * static_cast<int64_t>(dtype_size(p.dtype_in));
          p.query_stride_head = -p.query_stride_head;
        }),
        {},
        "the h-th from the last"},
       {"query_scale_ignored",
        "queries are rounded to e4m3 as they come",
        {kQueryInE4m3},
        with_append([](Tamper& t, KvAppendParams& p) { p.query_scale = t.put(std::vector<float>{1.0f}); }),
        {"query_out: e4m3"},
        "the scale of queries is not applied"},
       {"query_scale_inverted",
        "queries are multiplied by their scale",
        {kQueryInE4m3},
        with_append([](Tamper& t, KvAppendParams& p) {
          p.query_scale = t.put(std::vector<float>{1.0f / t.read<float>(p.query_scale, 1)[0]});
        }),
        {},
        "queries are multiplied by their scale"},
       {"padding_query_written",
        "queries of padding tokens are returned, too",
        {kQueryCopied},
        afterwards<&OpParams::kv_append>(write_padding),
        {"query_out: same"},
        "of padding tokens, whose slot is -1, are written"},
       {"positions64_read_as_int32",
        "each half of a position of 64 bits is taken as a position",
        {kPositionsOf64},
        with_append([](Tamper&, KvAppendParams& p) {
          p.features &= ~uint64_t{kPositions64};
          p.positions = reinterpret_cast<const int32_t*>(p.positions64);
          p.positions64 = nullptr;
        }),
        {"positions: int64"}}}};
}

}  // namespace attnbench
