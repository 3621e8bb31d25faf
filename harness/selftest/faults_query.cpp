// Faults of queries that kv_append returns, and of positions of 64 bits.
#include <algorithm>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define QUERY_APPEND "{op: kv_append, dtype: bf16, heads: 4/2, head_dim: 64, block_size: 16, "
#define QUERY_BATCH "batch: q5s21_q1s40_q16s16}"
constexpr const char* kTurned =
    QUERY_APPEND "query_out: same, rotary: neox, padding_tokens: 3, " QUERY_BATCH;
constexpr const char* kInE4m3 = QUERY_APPEND "query_out: e4m3, rotary: neox, padding_tokens: 3, " QUERY_BATCH;
constexpr const char* kCopied = QUERY_APPEND "query_out: same, padding_tokens: 3, " QUERY_BATCH;
constexpr const char* kLongPositions = QUERY_APPEND "rotary: neox, positions: int64, " QUERY_BATCH;

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

/// The right launch; then each row of a padding token holds its query.
KernelStatus write_padding(Tamper& t, const OpParams& op) {
  const KernelStatus status = t.launch(op);
  const KvAppendParams& p = op.kv_append;
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
  return status;
}

}  // namespace

FaultClass query_faults() {
  return {"returned queries",
          {{"query_not_turned",
            "queries are returned as they come",
            {kTurned, kInE4m3},
            with_queries_of([](Tamper&, KvAppendParams& p) { p.features &= ~uint64_t{kRotary | kPositions64}; }),
            {"query_out: same"}},
           {"query_turned_at_its_index",
            "queries turn to the index of their token in the launch, not to its position",
            {kTurned, kInE4m3},
            with_queries_of([](Tamper& t, KvAppendParams& p) {
              std::vector<int32_t> index;
              for (int32_t i = 0; i < p.num_tokens; ++i) index.push_back(std::min(i, p.rotary.positions - 1));
              p.positions = t.put(index);
              p.features &= ~uint64_t{kPositions64};
            }),
            {"query_out: same"}},
           {"query_heads_reversed",
            "query head h is that of the h-th from the last",
            {kCopied, kInE4m3},
            with_append([](Tamper&, KvAppendParams& p) {
              p.query = static_cast<const char*>(p.query) + (p.num_heads_q - 1) * p.query_stride_head *
                                                                static_cast<int64_t>(dtype_size(p.dtype_in));
              p.query_stride_head = -p.query_stride_head;
            })},
           {"query_scale_ignored",
            "queries are rounded to e4m3 as they come",
            {kInE4m3},
            with_append([](Tamper& t, KvAppendParams& p) { p.query_scale = t.put(std::vector<float>{1.0f}); }),
            {"query_out: e4m3"}},
           {"query_scale_inverted",
            "queries are multiplied by their scale",
            {kInE4m3},
            with_append([](Tamper& t, KvAppendParams& p) {
              p.query_scale = t.put(std::vector<float>{1.0f / t.read<float>(p.query_scale, 1)[0]});
            })},
           {"padding_query_written", "queries of padding tokens are returned, too", {kCopied}, write_padding,
            {"query_out: same"}},
           {"positions64_read_as_int32",
            "each half of a position of 64 bits is taken as a position",
            {kLongPositions},
            with_append([](Tamper&, KvAppendParams& p) {
              p.features &= ~uint64_t{kPositions64};
              p.positions = reinterpret_cast<const int32_t*>(p.positions64);
              p.positions64 = nullptr;
            }),
            {"positions: int64"}}}};
}

}  // namespace attnbench
