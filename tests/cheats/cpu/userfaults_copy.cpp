// Returns its outputs in pages that do not exist yet (kReturnsOutputs, userfaultfd): a thread sleeps until the harness
// copies them, after the clock has stopped, computes, and hands the pages over.
// No public source known; a variation of what the page of the cheats names as open, without a signal.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {
namespace {

constexpr std::size_t kOut = 1 << 17, kBytes = 2 << 17;
char* memory = nullptr;
AttentionParams pending;

bool start() {
  const auto fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
  uffdio_api api = {.api = UFFD_API};
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) return false;
  memory =
      static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  uffdio_register range = {.range = {reinterpret_cast<uintptr_t>(memory), kBytes},
                           .mode = UFFDIO_REGISTER_MODE_MISSING};
  if (ioctl(fd, UFFDIO_REGISTER, &range) != 0) return false;
  std::thread([fd] {
    std::vector<char> pages(kBytes);
    for (uffd_msg m; read(fd, &m, sizeof m) > 0;) {
      AttentionParams p = pending;
      p.out = pages.data();
      p.lse = reinterpret_cast<float*>(pages.data() + kOut);
      compute_heads(p, 0, p.num_heads_q);
      uffdio_copy copy = {.dst = reinterpret_cast<uintptr_t>(memory),
                          .src = reinterpret_cast<uintptr_t>(pages.data()),
                          .len = kBytes};
      ioctl(fd, UFFDIO_COPY, &copy);
    }
  }).detach();
  return true;
}

}  // namespace

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static const bool started = start();
  if (!started || context->returned == nullptr) return compute(op, context, message);
  madvise(memory, kBytes, MADV_DONTNEED);
  AttentionParams& p = pending = op->attention;
  p.out_stride_head = p.head_dim_v;
  p.out_stride_token = int64_t{p.num_heads_q} * p.head_dim_v;
  p.lse_stride_head = p.total_q;
  *context->returned = {.out = memory,
                        .out_stride_token = p.out_stride_token,
                        .out_stride_head = p.out_stride_head,
                        .out_stride_channel = 1,
                        .lse = reinterpret_cast<float*>(memory + kOut),
                        .lse_stride_head = p.lse_stride_head,
                        .lse_stride_token = 1,
                        .lse_factor = 1};
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(userfaults_copy, "computes when its outputs are read", k.flags |= attnbench::kReturnsOutputs;
                k.launch = attnbench::cheats::launch);
