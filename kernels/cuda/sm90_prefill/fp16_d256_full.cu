#include "kernels/cuda/sm90_prefill/kernel.cuh"

namespace attnbench::sm90_prefill {

struct Fp16D256Full {
  static constexpr Shape kShape{.dtype = DType::kFp16,
                                .head_dim = 256,
                                .block_m = 128,
                                .block_n = 64,
                                .q_stages = 1,
                                .masked = false,
                                .turns = false};
};
extern constexpr Instance kFp16D256Full = make_instance<Fp16D256Full>();

}  // namespace attnbench::sm90_prefill
