#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16D256R16 {
  static constexpr Shape kShape{.dtype = DType::kFp16, .head_dim = 256, .row_tiles = 1, .slots = 5};
};
extern constexpr Instance kFp16D256R16 = make_instance<Fp16D256R16>();

}  // namespace attnbench::sm90_decode
