#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Bf16D128R16Long {
  static constexpr Shape kShape{
      .dtype = DType::kBf16, .head_dim = 128, .row_tiles = 1, .slots = 4, .use = Use::kLong};
};
extern constexpr Instance kBf16D128R16Long = make_instance<Bf16D128R16Long>();

}  // namespace attnbench::sm90_decode
