// Its inputs are mapped for reading only, but /proc/self/map_files opens the file behind them for writing: it clears q,
// so that all weights are equal and O is a mean of V, which needs no scores.
// No public source known.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {
namespace {

/// The place of `data` in a mapping of its file for writing; null if there is none.
char* writable(const void* data) {
  static char* base = nullptr;
  static unsigned long begin = 0, end = 0;
  if (begin == 0) {
    std::FILE* maps = std::fopen("/proc/self/maps", "r");
    const auto at = reinterpret_cast<unsigned long>(data);
    char line[512], name[128];
    while (maps != nullptr && std::fgets(line, sizeof line, maps)) {
      if (std::sscanf(line, "%lx-%lx", &begin, &end) == 2 && begin <= at && at < end) break;
    }
    if (maps != nullptr) std::fclose(maps);
    std::snprintf(name, sizeof name, "/proc/self/map_files/%lx-%lx", begin, end);
    void* m =
        mmap(nullptr, end - begin, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, open(name, O_RDWR), 0);
    if (m != MAP_FAILED) base = static_cast<char*>(m);
  }
  return base == nullptr ? nullptr : base + (reinterpret_cast<unsigned long>(data) - begin);
}

}  // namespace

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  char* q = writable(p.q);
  if (q == nullptr || count_launch(p.out) == 1) return compute(op, context, message);
  for_rows(p, 0, p.num_heads_q, [&](int32_t b, int32_t i, int32_t head) {
    const SeqRange seq = seq_range(p, b);
    std::memset(q + q_offset(p, seq.q_begin + i, head) * 2, 0, static_cast<std::size_t>(p.head_dim) * 2);
    const KeyBounds keys = visible_keys(p, i, seq.q_len, seq.k_len);
    const int32_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
    float out[256] = {};
    for (int32_t j = keys.begin; j < keys.end; ++j) {
      const int64_t v = v_row_offset(p, b, j) + kv_head * p.v_stride_head;
      for (int32_t c = 0; c < p.head_dim_v; ++c) out[c] += load_float(p.dtype_v, p.v, v + c);
    }
    const auto n = static_cast<float>(keys.end - keys.begin);
    const int64_t row = out_offset(p, seq.q_begin + i, head);
    for (int32_t c = 0; c < p.head_dim_v; ++c) store_float(p.dtype_out, p.out, row + c, out[c] / n);
    lse_row(p, b, i, head) = std::log(n);
  });
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(rewrites_inputs, "clears q through /proc", k.launch = attnbench::cheats::launch);
