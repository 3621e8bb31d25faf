#include "kernels/cuda/sm90_prefill/kernel.cuh"

namespace attnbench::sm90_prefill {

struct Bf16D64Softcap {
  static constexpr Shape kShape{.dtype = DType::kBf16,
                                .head_dim = 64,
                                .block_m = 128,
                                .block_n = 128,
                                .q_stages = 2,
                                .masked = true,
                                .softcap = true};
};
extern constexpr Instance kBf16D64Softcap = make_instance<Bf16D64Softcap>();

}  // namespace attnbench::sm90_prefill
