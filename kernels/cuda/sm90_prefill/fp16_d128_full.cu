#include "kernels/cuda/sm90_prefill/kernel.cuh"

namespace attnbench::sm90_prefill {

struct Fp16D128Full {
  static constexpr Shape kShape{
      .dtype = DType::kFp16, .head_dim = 128, .block_m = 128, .block_n = 128, .q_stages = 2, .masked = false};
};
extern constexpr Instance kFp16D128Full = make_instance<Fp16D128Full>();

}  // namespace attnbench::sm90_prefill
