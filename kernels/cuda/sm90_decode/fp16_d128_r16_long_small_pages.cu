#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16D128R16LongSmallPages {
  static constexpr Shape kShape{
      .dtype = DType::kFp16, .head_dim = 128, .row_tiles = 1, .slots = 5, .use = Use::kLongSmallPages};
};
extern constexpr Instance kFp16D128R16LongSmallPages = make_instance<Fp16D128R16LongSmallPages>();

}  // namespace attnbench::sm90_decode
