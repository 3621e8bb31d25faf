#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16D64R32 {
  static constexpr Shape kShape{.dtype = DType::kFp16, .head_dim = 64, .row_tiles = 2, .slots = 12};
};
extern constexpr Instance kFp16D64R32 = make_instance<Fp16D64R32>();

}  // namespace attnbench::sm90_decode
