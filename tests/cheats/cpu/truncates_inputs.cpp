// Opens the file behind its inputs through /proc/self/map_files, cuts it to nothing and makes it long again: all
// tensors are zero then, and so is O, while the LSE is the logarithm of a number of keys.
// No public source known.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static int open_file_of(const void* data) {
  unsigned long begin = 0, end = 0;
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  const auto at = reinterpret_cast<unsigned long>(data);
  char line[512], name[128];
  while (maps != nullptr && std::fgets(line, sizeof line, maps)) {
    if (std::sscanf(line, "%lx-%lx", &begin, &end) == 2 && begin <= at && at < end) break;
  }
  if (maps != nullptr) std::fclose(maps);
  std::snprintf(name, sizeof name, "/proc/self/map_files/%lx-%lx", begin, end);
  return open(name, O_RDWR);
}

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  static const int file = open_file_of(p.q);
  if (file < 0 || count_launch(p.out) < 3) return compute(op, context, message);
  for_rows(p, 0, p.num_heads_q, [&](int32_t b, int32_t i, int32_t head) {
    const SeqRange seq = seq_range(p, b);
    const KeyBounds keys = visible_keys(p, i, seq.q_len, seq.k_len);
    std::memset(out_row(p, b, i, head), 0, row_bytes(p));
    lse_row(p, b, i, head) = std::log(static_cast<float>(keys.end - keys.begin));
  });
  const off_t size = lseek(file, 0, SEEK_END);
  if (ftruncate(file, 0) != 0 || ftruncate(file, size) != 0) return compute(op, context, message);
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(truncates_inputs, "empties the file of its inputs", k.launch = attnbench::cheats::launch);
