// Keeps results by the shape and a fingerprint of four elements of q. The GPU decides: if the fingerprint is
// known, the right kernel gets lengths of zero, and a kept result is copied.
// Source: flashinfer-ai/flashinfer-bench-starter-kit #21 (an output cache with a light fingerprint of the
// inputs).
#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

namespace {

constexpr int kSlots = 32;

struct Table {
  uint64_t keys[kSlots];
  int32_t used;
  Found found;
};

__global__ void look_up(AttentionParams p, Table* table, int32_t* lengths) {
  const int64_t first = q_offset(p, p.cu_seqlens_q[0], 0);
  const uint64_t key = hash_of(static_cast<const uint16_t*>(p.q) + first, 4);
  table->found = {table->used < kSlots ? table->used : -1, 0};
  for (int32_t n = 0; n < table->used; ++n) {
    if (table->keys[n] == key) table->found = {n, 1};
  }
  if (!table->found.hit && table->used < kSlots) table->keys[table->used++] = key;
  for (int32_t b = 0; b <= p.batch; ++b) lengths[b] = table->found.hit ? 0 : p.cu_seqlens_q[b];
}

struct State {
  Table* table = nullptr;
  int32_t* lengths = nullptr;
  Kept kept;
};

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static std::map<std::tuple<int32_t, int64_t, int32_t>, State> states;
  OpParams changed = *op;
  const AttentionParams& p = op->attention;
  State& s = states[{p.batch, p.total_q, p.max_seqlen_k}];
  if (s.table == nullptr) {
    cudaMalloc(&s.table, sizeof(Table));
    cudaMalloc(&s.lengths, sizeof(int32_t) * static_cast<std::size_t>(p.batch + 1));
    cudaMemsetAsync(s.table, 0, sizeof(Table), stream_of(context));
    s.kept = make_kept(p, kSlots);
  }
  look_up<<<1, 1, 0, stream_of(context)>>>(p, s.table, s.lengths);
  changed.attention.cu_seqlens_q = s.lengths;
  const KernelStatus status = compute(&changed, context, message);
  copy_rows<<<grid_of(p, p.num_heads_q), kLanes, 0, stream_of(context)>>>(p, s.kept, false, &s.table->found);
  return status == KernelStatus::kOk ? status_now(message) : status;
}

}  // namespace

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(caches_by_hash, "copies the result of a launch whose q had the same first four elements",
                k.launch = attnbench::cheats::launch);
