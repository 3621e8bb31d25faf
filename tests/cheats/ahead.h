// What cheats share that compute before the clock starts: places for the launches that have been seen, in memory that
// forked processes share, and a look whether new inputs have arrived. A cheat decides who looks, and when.
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

struct Ahead {
  AttentionParams p;  ///< the launch; valid if `used`
  std::atomic<bool> used;
  std::atomic<uint64_t> seen;   ///< digest at the last look
  std::atomic<uint64_t> begun;  ///< digest of the inputs that somebody computes
  std::atomic<uint64_t> done;   ///< digest of the inputs of `out` and `lse`
  char out[1 << 17];
  float lse[1 << 12];
};
inline constexpr int kAheads = 16;
inline Ahead* const aheads = static_cast<Ahead*>(
    mmap(nullptr, kAheads * sizeof(Ahead), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
inline std::atomic<int> next_ahead{0};

/// Whether tables and lengths are those of this launch, or what a later case has put there.
inline bool is_plausible(const AttentionParams& p) {
  for (int32_t b = 0; b < p.batch; ++b) {
    const SeqRange s = seq_range(p, b);
    if (s.q_len < 0 || s.q_len > p.max_seqlen_q || s.k_len < 0 || s.k_len > p.max_seqlen_k) return false;
    if (s.q_begin < 0 || s.q_begin + s.q_len > p.total_q) return false;
    for (int32_t n = 0; (p.features & kPagedKv) != 0 && n * p.block_size < s.k_len; ++n) {
      const int32_t block = p.block_table[b * p.block_table_stride + n];
      if (block < 0 || block >= p.num_blocks) return false;
    }
    if ((p.features & kPagedKv) == 0 &&
        (p.cu_seqlens_k[b] < 0 || p.cu_seqlens_k[b] > p.batch * p.max_seqlen_k))
      return false;
  }
  return true;
}

/// Of all that the launch reads, in four lanes.
inline uint64_t digest(const AttentionParams& p) {
  if (!is_plausible(p)) return 0;
  uint64_t h[4] = {1, 2, 3, 4};
  const auto add = [&](const void* data, int64_t offset, int32_t count) {
    const auto* x = static_cast<const uint16_t*>(data) + offset;
    for (int32_t c = 0; c + 16 <= count; c += 16) {
      uint64_t w[4];
      std::memcpy(w, x + c, sizeof w);
      for (int n = 0; n < 4; ++n) h[n] = (h[n] ^ w[n]) * 0x9e3779b97f4a7c15ull, h[n] ^= h[n] >> 29;
    }
  };
  for (int32_t b = 0; b < p.batch; ++b) {
    const SeqRange s = seq_range(p, b);
    for (int32_t i = 0; i < s.q_len; ++i) {
      for (int32_t n = 0; n < p.num_heads_q; ++n) add(p.q, q_offset(p, s.q_begin + i, n), p.head_dim);
    }
    for (int32_t j = 0; j < s.k_len; ++j) {
      for (int32_t n = 0; n < p.num_heads_kv; ++n) {
        add(p.k, k_row_offset(p, b, j) + n * p.k_stride_head, p.head_dim);
        add(p.v, v_row_offset(p, b, j) + n * p.v_stride_head, p.head_dim_v);
      }
    }
  }
  return (h[0] ^ h[1] * 3 ^ h[2] * 5 ^ h[3] * 7) | 1;
}

inline void compute_ahead(Ahead& a, uint64_t d) {
  if (a.begun.exchange(d) == d) return;
  AttentionParams p = a.p;
  p.out = a.out;
  p.out_stride_head = p.head_dim_v;
  p.out_stride_token = int64_t{p.num_heads_q} * p.head_dim_v;
  p.lse = a.lse;
  p.lse_stride_head = p.total_q;
  compute_heads(p, 0, p.num_heads_q);
  a.done = digest(a.p) == d ? d : 0;
  if (a.done == 0) a.begun = 0;
}

/// Computes those launches whose inputs have changed; `looks` 2: and that have stood still since the last look.
inline void look(int looks) {
  for (int n = 0; n < kAheads; ++n) {
    Ahead& a = aheads[n];
    if (!a.used) continue;
    const uint64_t d = digest(a.p);
    if (d != 0 && d != a.begun && (looks < 2 || a.seen == d)) compute_ahead(a, d);
    a.seen = d;
  }
}

/// The same in a handler of a signal, which may come while tensors of another case are put in place.
inline sigjmp_buf gone;
inline void look_in_handler(int) {
  struct sigaction action = {}, old = {};
  action.sa_handler = [](int) { siglongjmp(gone, 1); };
  action.sa_flags = SA_NODEFER;
  sigaction(SIGSEGV, &action, &old);
  if (sigsetjmp(gone, 1) == 0) look(1);
  sigaction(SIGSEGV, &old, nullptr);
}
/// Calls it at each `number`.
inline void look_at(int number) {
  struct sigaction action = {};
  action.sa_handler = look_in_handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
}

/// The launch: copies what has been computed, or computes.
inline KernelStatus take(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  const uint64_t d = digest(p);
  for (int n = 0; n < kAheads; ++n) {
    Ahead& a = aheads[n];
    if (!a.used || a.p.out != p.out || a.p.q != p.q || a.p.total_q != p.total_q ||
        a.p.max_seqlen_k != p.max_seqlen_k)
      continue;
    for (int wait = 0; a.begun == d && a.done != d && wait < 2000000; ++wait) __builtin_ia32_pause();
    if (a.done != d) {
      a.begun = a.seen = d;
      return compute(op, context, message);
    }
    for_rows(p, 0, p.num_heads_q, [&](int32_t b, int32_t i, int32_t head) {
      const int64_t row = seq_range(p, b).q_begin + i;
      std::memcpy(out_row(p, b, i, head),
                  a.out + static_cast<std::size_t>(row * p.num_heads_q + head) * row_bytes(p), row_bytes(p));
      lse_row(p, b, i, head) = a.lse[head * p.total_q + row];
    });
    return KernelStatus::kOk;
  }
  for (int n = 0; n < kAheads; ++n)
    aheads[n].used =
        aheads[n].used && aheads[n].p.total_q == p.total_q && aheads[n].p.max_seqlen_k == p.max_seqlen_k;
  Ahead& a = aheads[next_ahead++ % kAheads];
  a.used = false;
  std::memcpy(&a.p, &p, sizeof p);
  a.begun = a.seen = a.done = d;
  a.done = 0;
  a.used = true;
  return compute(op, context, message);
}

}  // namespace attnbench::cheats
