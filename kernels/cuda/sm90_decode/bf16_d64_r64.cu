#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Bf16D64R64 {
  static constexpr Shape kShape{
      .dtype = DType::kBf16, .head_dim = 64, .row_tiles = 4, .slots = 16, .warps = 8};
};
extern constexpr Instance kBf16D64R64 = make_instance<Bf16D64R64>();

}  // namespace attnbench::sm90_decode
