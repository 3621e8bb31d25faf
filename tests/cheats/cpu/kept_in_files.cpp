// Keeps results in /dev/shm, under a digest of the inputs, for launches of later processes and of later runs, which may
// draw the same numbers again from their seeds.
// No public source known.
#include <fcntl.h>

#include <string>

#include "tests/cheats/ahead.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  const std::string name = "/dev/shm/attnbench_kept_" + std::to_string(digest(p));
  const std::size_t rows = static_cast<std::size_t>(p.total_q) * static_cast<std::size_t>(p.num_heads_q);
  Kept kept{std::vector<char>(rows * row_bytes(p)), std::vector<float>(rows)};
  if (const int fd = open(name.c_str(), O_RDONLY); fd >= 0) {
    const bool whole = read(fd, kept.out.data(), kept.out.size()) == static_cast<ssize_t>(kept.out.size()) &&
                       read(fd, kept.lse.data(), rows * 4) == static_cast<ssize_t>(rows * 4);
    close(fd);
    if (whole) {
      put(p, kept);
      return KernelStatus::kOk;
    }
  }
  const KernelStatus status = compute(op, context, message);
  kept = keep(p);
  if (const int fd = open(name.c_str(), O_CREAT | O_WRONLY, 0600); fd >= 0) {
    (void)!write(fd, kept.out.data(), kept.out.size());
    (void)!write(fd, kept.lse.data(), kept.lse.size() * 4);
    close(fd);
  }
  return status;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(kept_in_files, "keeps results in /dev/shm", k.launch = attnbench::cheats::launch);
