#include "harness/values/fill.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace attnbench {
namespace {

/// Rounds `n` values to `dtype` and writes them to elements at, at + 1, ... of `base`. Values for int8 and e2m1 are
/// first multiplied by `factor`.
void store_row(DType dtype, void* base, int64_t at, const float* values, int n, float factor) {
  switch (dtype) {
    case DType::kInt8: {
      auto* out = static_cast<int8_t*>(base) + at;
      for (int c = 0; c < n; ++c) out[c] = float_to_int8(values[c] * factor);
      return;
    }
    case DType::kBf16: {
      auto* out = static_cast<uint16_t*>(base) + at;
      for (int c = 0; c < n; ++c) out[c] = float_to_bf16(values[c]);
      return;
    }
    case DType::kFp16: {
      auto* out = static_cast<uint16_t*>(base) + at;
      for (int c = 0; c < n; ++c) out[c] = float_to_fp16(values[c]);
      return;
    }
    case DType::kE4m3: {
      auto* out = static_cast<uint8_t*>(base) + at;
      for (int c = 0; c < n; ++c) out[c] = float_to_e4m3(values[c]);
      return;
    }
    case DType::kE5m2: {
      auto* out = static_cast<uint8_t*>(base) + at;
      for (int c = 0; c < n; ++c) out[c] = float_to_e5m2(values[c]);
      return;
    }
    case DType::kE2m1x2: {
      for (int c = 0; c < n; ++c) store_float(dtype, base, 2 * at + c, values[c] * factor);
      return;
    }
    default:
      std::memcpy(static_cast<float*>(base) + at, values, static_cast<std::size_t>(n) * sizeof(float));
  }
}

/// The numbers of a row before they are multiplied and rounded. `values` has room for the channels before the row's
/// first, too. Returns where the row begins.
const float* row_values(const FillJob& job, const RowOwner& owner, int32_t head, std::vector<float>& values) {
  const auto seq = static_cast<uint32_t>(owner.seq), pos = static_cast<uint32_t>(owner.pos);
  const auto h = static_cast<uint32_t>(head);
  if (job.block_scales) {
    for (int32_t c = 0; c < job.head_dim; ++c)
      values[static_cast<std::size_t>(c)] =
          block_scale(job.spec, job.tensor, seq, pos, h, static_cast<uint32_t>(c));
    return values.data();
  }
  value_row(job.spec, job.tensor, seq, pos, h, job.first_channel + job.head_dim, values.data());
  return values.data() + job.first_channel;
}

/// Rows in the order in which they lie.
class InHoles {
 public:
  explicit InHoles(std::span<const Hole> holes) : holes_(holes) {}
  bool operator()(const char* begin, const char* end) {
    if (holes_.empty()) return false;
    if (begin < holes_[last_].begin || end > holes_[last_].end) {
      const auto next = std::ranges::upper_bound(holes_, begin, {}, &Hole::begin);
      if (next == holes_.begin()) return false;
      last_ = static_cast<std::size_t>(next - holes_.begin()) - 1;
    }
    return begin >= holes_[last_].begin && end <= holes_[last_].end;
  }

 private:
  std::span<const Hole> holes_;
  std::size_t last_ = 0;
};

}  // namespace

void fill_host(const FillJob& job, std::span<const Hole> holes) {
  if (job.num_rows <= 0 || job.num_heads <= 0 || job.head_dim <= 0) return;
  const int64_t size = static_cast<int64_t>(dtype_size(job.dtype));
  const int poison = job.dtype == DType::kInt8 ? 0x80 : 0xff;
  const float factor = stored_factor(job.dtype, job.spec.profile, job.tensor);
  const int64_t elements = job.num_rows * job.num_heads * job.head_dim;
#pragma omp parallel if (elements > kWorthThreads)
  {
    std::vector<float> values(static_cast<std::size_t>(job.first_channel + job.head_dim));
    InHoles in_holes(holes);
#pragma omp for schedule(static)
    for (int64_t r = 0; r < job.num_rows; ++r) {
      const RowOwner owner = job.owners[r];
      const char* row = static_cast<const char*>(job.base) + fill_offset(job, r, 0) * size;
      if (in_holes(row, row + ((job.num_heads - 1) * job.stride_head + job.head_dim) * size)) continue;
      for (int32_t h = 0; h < job.num_heads; ++h) {
        const int64_t at = fill_offset(job, r, h);
        if (owner.seq < 0) {
          std::memset(static_cast<char*>(job.base) + at * size, poison,
                      static_cast<std::size_t>(job.head_dim / numbers_per_element(job.dtype) * size));
          continue;
        }
        store_row(job.dtype, job.base, at, row_values(job, owner, h, values), job.head_dim, factor);
      }
    }
  }
}

uint64_t digest_host(const void* data, int64_t bytes) {
  const auto* base = static_cast<const char*>(data);
  const int64_t words = bytes / 8;
  uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (words > kWorthThreads)
  for (int64_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, base + 8 * i, sizeof word);
    sum += digest_word(word, static_cast<uint64_t>(i));
  }
  if (const int64_t rest = bytes - 8 * words; rest > 0) {
    uint64_t word = 0;
    std::memcpy(&word, base + 8 * words, static_cast<std::size_t>(rest));
    sum += digest_word(word, static_cast<uint64_t>(words));
  }
  return sum;
}

}  // namespace attnbench
