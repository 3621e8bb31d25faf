#include "harness/values/returned.h"

namespace attnbench {
namespace {

template <class Bits>
void take(const ReturnedTensor& t) {
  const int64_t n = returned_elements(t);
#pragma omp parallel if (n > kWorthThreads)
  {
#pragma omp for schedule(static)
    for (int64_t e = 0; e < n; ++e) copy_returned<Bits>(t, e);
    if (t.from.data != t.to.data) {
#pragma omp for schedule(static)
      for (int64_t e = 0; e < n; ++e) poison_returned<Bits>(t, e);
    }
  }
}

}  // namespace

void take_returned_host(const ReturnedTensor& t) {
  switch (dtype_size(t.dtype)) {
    case 4:
      return take<uint32_t>(t);
    case 2:
      return take<uint16_t>(t);
    default:
      return take<uint8_t>(t);
  }
}

}  // namespace attnbench
