#include "kernels/cuda/sm90_prefill/kernel.cuh"

namespace attnbench::sm90_prefill {

struct Fp16D64Softcap {
  static constexpr Shape kShape{.dtype = DType::kFp16,
                                .head_dim = 64,
                                .block_m = 128,
                                .block_n = 128,
                                .q_stages = 2,
                                .masked = true,
                                .softcap = true};
};
extern constexpr Instance kFp16D64Softcap = make_instance<Fp16D64Softcap>();

}  // namespace attnbench::sm90_prefill
