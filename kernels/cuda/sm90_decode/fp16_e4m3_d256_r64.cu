#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16E4m3D256R64 {
  static constexpr Shape kShape{.dtype = DType::kFp16,
                                .head_dim = 256,
                                .row_tiles = 4,
                                .slots = 8,
                                .tile_tokens = 32,
                                .eight_bit_kv = true};
};
extern constexpr Instance kFp16E4m3D256R64 = make_instance<Fp16E4m3D256R64>();

}  // namespace attnbench::sm90_decode
