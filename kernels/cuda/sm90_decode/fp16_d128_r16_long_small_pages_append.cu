#include "kernels/cuda/sm90_decode/kernel.cuh"

namespace attnbench::sm90_decode {

struct Fp16D128R16LongSmallPagesAppend {
  static constexpr Shape kShape{.dtype = DType::kFp16,
                                .head_dim = 128,
                                .row_tiles = 1,
                                .slots = 6,
                                .use = Use::kLongSmallPages,
                                .append = true};
};
extern constexpr Instance kFp16D128R16LongSmallPagesAppend = make_instance<Fp16D128R16LongSmallPagesAppend>();

}  // namespace attnbench::sm90_decode
