#include "kernels/cuda/sm90_mixed/together.cuh"

namespace attnbench::sm90_mixed {

extern constexpr TogetherInstance kFp16Together = make_together<DType::kFp16>();

}  // namespace attnbench::sm90_mixed
