#include "kernels/cuda/sm90_prefill/kernel.cuh"

namespace attnbench::sm90_prefill {

struct Bf16D256Softcap {
  static constexpr Shape kShape{.dtype = DType::kBf16,
                                .head_dim = 256,
                                .block_m = 128,
                                .block_n = 64,
                                .q_stages = 1,
                                .masked = true,
                                .softcap = true,
                                .turns = false};
};
extern constexpr Instance kBf16D256Softcap = make_instance<Bf16D256Softcap>();

}  // namespace attnbench::sm90_prefill
