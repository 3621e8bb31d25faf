#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16D64R16Append {
  static constexpr Shape kShape{
      .dtype = DType::kFp16, .head_dim = 64, .row_tiles = 1, .slots = 8, .append = true};
};
extern constexpr Instance kFp16D64R16Append = make_instance<Fp16D64R16Append>();

}  // namespace attnbench::sm90_decode
