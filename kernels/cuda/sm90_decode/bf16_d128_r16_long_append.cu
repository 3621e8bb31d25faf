#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Bf16D128R16LongAppend {
  static constexpr Shape kShape{
      .dtype = DType::kBf16, .head_dim = 128, .row_tiles = 1, .slots = 6, .use = Use::kLong, .append = true};
};
extern constexpr Instance kBf16D128R16LongAppend = make_instance<Bf16D128R16LongAppend>();

}  // namespace attnbench::sm90_decode
