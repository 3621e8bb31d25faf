#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16D256R64 {
  static constexpr Shape kShape{
      .dtype = DType::kFp16, .head_dim = 256, .row_tiles = 4, .slots = 8, .tile_tokens = 32};
};
extern constexpr Instance kFp16D256R64 = make_instance<Fp16D256R64>();

}  // namespace attnbench::sm90_decode
