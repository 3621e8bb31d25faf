// Lets K stay in the persisting part of L2, and never gives it up: a cold cache is not cold for it.
// Source: gpu-mode/pygpubench, l2_persistence among its tests.
#include <algorithm>

#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  static std::once_flag once;
  std::call_once(once, [context] {
    int most = 0;
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxPersistingL2CacheSize, context->device_ordinal);
    cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, static_cast<std::size_t>(most));
  });
  const int64_t rows = p.features & kPagedKv ? p.num_blocks * p.k_stride_block
                                             : int64_t{p.batch} * p.max_seqlen_k * p.k_stride_token;
  cudaStreamAttrValue value{};
  value.accessPolicyWindow.base_ptr = const_cast<void*>(p.k);
  value.accessPolicyWindow.num_bytes =
      std::min<std::size_t>(static_cast<std::size_t>(rows) * dtype_size(p.dtype_k), std::size_t{16} << 20);
  value.accessPolicyWindow.hitRatio = 1.0f;
  value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  cudaStreamSetAttribute(stream_of(context), cudaStreamAttributeAccessPolicyWindow, &value);
  return compute(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(persisting_l2, "keeps K in the persisting part of L2", k.launch = attnbench::cheats::launch);
