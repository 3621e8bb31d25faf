// The right kernel of kernels/examples/cuda, after a read whose value is dropped, of the byte behind K (PAST) or of a
// block of the pool that no sequence has (HOLE), or a write of the first byte of q that changes nothing (STORE).
#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {
namespace {

__global__ void overstep(const char* past, char* store, int* sink) {
  if (past != nullptr && *past == 'a' && past[1] == 'b') *sink = 1;
  if (store != nullptr) *const_cast<volatile char*>(store) = *const_cast<volatile char*>(store);
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  const auto* k = static_cast<const char*>(p.k);
  const int64_t bytes = p.num_blocks * p.k_stride_block * static_cast<int64_t>(dtype_size(p.dtype_k));
#ifdef PAST
  overstep<<<1, 1, 0, stream_of(context)>>>(k + bytes, nullptr, reinterpret_cast<int*>(p.out));
#elif defined(HOLE)
  overstep<<<1, 1, 0, stream_of(context)>>>(k + bytes / 2, nullptr, reinterpret_cast<int*>(p.out));
#else
  overstep<<<1, 1, 0, stream_of(context)>>>(nullptr, static_cast<char*>(const_cast<void*>(p.q)), nullptr);
#endif
  return compute(op, context, message);
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(oversteps, "touches what it must not, without an effect",
                k.launch = attnbench::cheats::launch);
