#include "kernels/cuda/sm90_prefill/kernel.cuh"

namespace attnbench::sm90_prefill {

struct Bf16D128Full {
  static constexpr Shape kShape{
      .dtype = DType::kBf16, .head_dim = 128, .block_m = 128, .block_n = 128, .q_stages = 2, .masked = false};
};
extern constexpr Instance kBf16D128Full = make_instance<Bf16D128Full>();

}  // namespace attnbench::sm90_prefill
