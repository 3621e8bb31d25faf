#include "kernels/cuda/sm90_mixed/together.cuh"

namespace attnbench::sm90_mixed {

extern constexpr TogetherInstance kBf16Together = make_together<DType::kBf16>();

}  // namespace attnbench::sm90_mixed
