#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Bf16D128R32 {
  static constexpr Shape kShape{.dtype = DType::kBf16, .head_dim = 128, .row_tiles = 2, .slots = 6};
};
extern constexpr Instance kBf16D128R32 = make_instance<Bf16D128R32>();

}  // namespace attnbench::sm90_decode
