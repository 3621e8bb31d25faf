#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16E4m3D128R16LongSmallPages {
  static constexpr Shape kShape{.dtype = DType::kFp16,
                                .head_dim = 128,
                                .row_tiles = 1,
                                .slots = 5,
                                .tile_tokens = 128,
                                .eight_bit_kv = true,
                                .use = Use::kLongSmallPages};
};
extern constexpr Instance kFp16E4m3D128R16LongSmallPages = make_instance<Fp16E4m3D128R16LongSmallPages>();

}  // namespace attnbench::sm90_decode
