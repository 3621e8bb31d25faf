#include "harness/tensors/captured_fill.h"

#include <cstring>
#include <new>

#include "harness/error.h"

namespace attnbench {

void fill_captured(Device& device, const FillJob& job, const std::vector<RowOwner>& owners, int64_t bytes,
                   const CapturedTensors& captured) {
  std::vector<unsigned char> host;
  try {
    host.assign(static_cast<std::size_t>(bytes), 0xff);
  } catch (const std::bad_alloc&) {
    throw TooLarge("not enough host memory for a copy of a captured tensor");
  }
  const std::size_t element = dtype_size(job.dtype), row = element * static_cast<std::size_t>(job.head_dim);
  for (std::size_t r = 0; r < owners.size(); ++r) {
    if (owners[r].seq < 0) continue;
    for (int32_t h = 0; h < job.num_heads; ++h) {
      const auto at = static_cast<std::size_t>(fill_offset(job, static_cast<int64_t>(r), h)) * element;
      if (owners[r].seq == kNoSequence) {
        std::memset(&host[at], 0, row);
      } else {
        std::memcpy(&host[at], captured.row(job.tensor, owners[r].seq, owners[r].pos, h), row);
      }
    }
  }
  if (bytes > 0) device.upload(job.base, host.data(), bytes);
}

}  // namespace attnbench
