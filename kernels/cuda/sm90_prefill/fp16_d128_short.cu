#include "kernels/cuda/sm90_prefill/kernel.cuh"

namespace attnbench::sm90_prefill {

struct Fp16D128Short {
  static constexpr Shape kShape{.dtype = DType::kFp16,
                                .head_dim = 128,
                                .block_m = 128,
                                .block_n = 128,
                                .q_stages = 2,
                                .masked = true,
                                .short_tiles = true};
};
extern constexpr Instance kFp16D128Short = make_instance<Fp16D128Short>();

}  // namespace attnbench::sm90_prefill
