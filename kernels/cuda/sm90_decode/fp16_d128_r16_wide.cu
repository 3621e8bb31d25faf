#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16D128R16Wide {
  static constexpr Shape kShape{.dtype = DType::kFp16,
                                .head_dim = 128,
                                .row_tiles = 1,
                                .slots = 6,
                                .tile_tokens = 128,
                                .use = Use::kFewBlocks};
};
extern constexpr Instance kFp16D128R16Wide = make_instance<Fp16D128R16Wide>();

}  // namespace attnbench::sm90_decode
