#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16D128R16Long {
  static constexpr Shape kShape{
      .dtype = DType::kFp16, .head_dim = 128, .row_tiles = 1, .slots = 4, .use = Use::kLong};
};
extern constexpr Instance kFp16D128R16Long = make_instance<Fp16D128R16Long>();

}  // namespace attnbench::sm90_decode
