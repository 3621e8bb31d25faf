#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16D128R32 {
  static constexpr Shape kShape{.dtype = DType::kFp16, .head_dim = 128, .row_tiles = 2, .slots = 6};
};
extern constexpr Instance kFp16D128R32 = make_instance<Fp16D128R32>();

}  // namespace attnbench::sm90_decode
