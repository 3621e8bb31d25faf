#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16E4m3D128R64 {
  static constexpr Shape kShape{
      .dtype = DType::kFp16, .head_dim = 128, .row_tiles = 4, .slots = 8, .warps = 8, .eight_bit_kv = true};
};
extern constexpr Instance kFp16E4m3D128R64 = make_instance<Fp16E4m3D128R64>();

}  // namespace attnbench::sm90_decode
