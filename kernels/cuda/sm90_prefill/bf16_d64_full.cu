#include "kernels/cuda/sm90_prefill/kernel.cuh"

namespace attnbench::sm90_prefill {

struct Bf16D64Full {
  static constexpr Shape kShape{.dtype = DType::kBf16,
                                .head_dim = 64,
                                .block_m = 192,
                                .block_n = 128,
                                .q_stages = 2,
                                .masked = false,
                                .across_tiles = false};
};
extern constexpr Instance kBf16D64Full = make_instance<Bf16D64Full>();

}  // namespace attnbench::sm90_prefill
