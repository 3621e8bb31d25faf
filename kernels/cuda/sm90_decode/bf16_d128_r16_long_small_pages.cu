#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Bf16D128R16LongSmallPages {
  static constexpr Shape kShape{
      .dtype = DType::kBf16, .head_dim = 128, .row_tiles = 1, .slots = 5, .use = Use::kLongSmallPages};
};
extern constexpr Instance kBf16D128R16LongSmallPages = make_instance<Bf16D128R16LongSmallPages>();

}  // namespace attnbench::sm90_decode
