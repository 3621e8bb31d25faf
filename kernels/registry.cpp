#include "kernels/registry.h"

#include "kernels/cpu/cpu_kernels.h"
#if ATTNBENCH_HAVE_CUDA
#include "kernels/cuda/append/append.h"
#include "kernels/cuda/merge/merge.h"
#include "kernels/cuda/simt/simt_kernels.h"
#include "kernels/cuda/sm90_backward/sm90_backward.h"
#include "kernels/cuda/sm90_decode/sm90_decode.h"
#include "kernels/cuda/sm90_mixed/sm90_mixed.h"
#include "kernels/cuda/sm90_mla/sm90_mla.h"
#include "kernels/cuda/sm90_prefill/sm90_prefill.h"
#endif

namespace attnbench {
namespace {

const Kernel* const kTable[] = {
    // clang-format off
    &cpu::kAttention,
    &cpu::kKvAppend,
    &cpu::kMergeStates,
    &cpu::kAttentionBackward,
    &cpu::kKvMove,
#if ATTNBENCH_HAVE_CUDA
    &cuda_simt::kAttention,
    &cuda_simt::kKvAppend,
    &cuda_simt::kMergeStates,
    &cuda_simt::kAttentionBackward,
    &cuda_simt::kKvMove,
    &cuda_append::kKvAppend,
    &cuda_merge::kMergeStates,
    &sm90_prefill::kAttention,
    &sm90_prefill::kFixedAttention,
    &sm90_prefill::kOneLevelAttention,
    &sm90_decode::kAttention,
    &sm90_decode::kFixedAttention,
    &sm90_mixed::kAttention,
    &sm90_mla::kAttention,
    &sm90_backward::kAttentionBackward,
    &sm90_backward::kAtomicsBackward,
#endif
    // clang-format on
};

}  // namespace

KernelTable builtin_kernels() { return kTable; }

}  // namespace attnbench
