#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Bf16D64R16Append {
  static constexpr Shape kShape{
      .dtype = DType::kBf16, .head_dim = 64, .row_tiles = 1, .slots = 8, .append = true};
};
extern constexpr Instance kBf16D64R16Append = make_instance<Bf16D64R16Append>();

}  // namespace attnbench::sm90_decode
