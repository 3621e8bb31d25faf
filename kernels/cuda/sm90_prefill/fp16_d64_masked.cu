#include "kernels/cuda/sm90_prefill/kernel.cuh"

namespace attnbench::sm90_prefill {

struct Fp16D64Masked {
  static constexpr Shape kShape{.dtype = DType::kFp16,
                                .head_dim = 64,
                                .block_m = 192,
                                .block_n = 128,
                                .q_stages = 2,
                                .masked = true,
                                .across_tiles = false};
};
extern constexpr Instance kFp16D64Masked = make_instance<Fp16D64Masked>();

}  // namespace attnbench::sm90_prefill
