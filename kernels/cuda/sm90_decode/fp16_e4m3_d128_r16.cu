#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16E4m3D128R16 {
  static constexpr Shape kShape{.dtype = DType::kFp16,
                                .head_dim = 128,
                                .row_tiles = 1,
                                .slots = 4,
                                .tile_tokens = 128,
                                .eight_bit_kv = true};
};
extern constexpr Instance kFp16E4m3D128R16 = make_instance<Fp16E4m3D128R16>();

}  // namespace attnbench::sm90_decode
