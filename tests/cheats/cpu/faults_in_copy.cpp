// Returns its outputs in memory of its own (kReturnsOutputs) that nobody may read, and computes them in the handler of
// the fault by which the harness copies them, after the clock has stopped.
// Source: the page of the cheats names it as open: a kernel that computes O when its pages are first read.
#include <signal.h>
#include <sys/mman.h>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {
namespace {

constexpr std::size_t kOut = 1 << 20, kBytes = 2 << 20;
char* memory = nullptr;
AttentionParams pending;

void on_fault(int, siginfo_t* info, void*) {
  const auto* at = static_cast<const char*>(info->si_addr);
  if (at < memory || at >= memory + kBytes) {
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  mprotect(memory, kBytes, PROT_READ | PROT_WRITE);
  compute_heads(pending, 0, pending.num_heads_q);
}

}  // namespace

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (context->returned == nullptr) return compute(op, context, message);
  if (memory == nullptr) {
    memory = static_cast<char*>(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  mprotect(memory, kBytes, PROT_NONE);
  AttentionParams& p = pending = op->attention;
  p.out = memory;
  p.lse = reinterpret_cast<float*>(memory + kOut);
  p.out_stride_head = p.head_dim_v;
  p.out_stride_token = int64_t{p.num_heads_q} * p.head_dim_v;
  p.lse_stride_head = p.total_q;
  *context->returned = {.out = p.out,
                        .out_stride_token = p.out_stride_token,
                        .out_stride_head = p.out_stride_head,
                        .out_stride_channel = 1,
                        .lse = p.lse,
                        .lse_stride_head = p.lse_stride_head,
                        .lse_stride_token = 1,
                        .lse_factor = 1};
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(faults_in_copy, "computes when its outputs are read", k.flags |= attnbench::kReturnsOutputs;
                k.launch = attnbench::cheats::launch);
