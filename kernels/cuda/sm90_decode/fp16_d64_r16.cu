#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16D64R16 {
  static constexpr Shape kShape{.dtype = DType::kFp16, .head_dim = 64, .row_tiles = 1, .slots = 8};
};
extern constexpr Instance kFp16D64R16 = make_instance<Fp16D64R16>();

}  // namespace attnbench::sm90_decode
