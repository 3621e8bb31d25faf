#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "harness/verify/verify.h"

namespace attnbench {
namespace {

/// The cache as it must be after the append: the old contents and poison, then the appended rows over them.
std::vector<unsigned char> expected_cache(const Workload& w, bool is_v, std::size_t bytes) {
  std::vector<unsigned char> cache(bytes);
  FillJob job = w.cache_job(is_v);
  job.base = cache.data();
  job.owners = w.plan().kv_owners.data();
  fill_host(job);

  // The appended rows come from other tensors; a second cache keeps the two fills apart.
  std::vector<unsigned char> added(bytes);
  job.tensor = is_v ? Tensor::kNewV : Tensor::kNewK;
  job.base = added.data();
  job.owners = w.plan().appended.data();
  fill_host(job);
  const std::size_t row_bytes = static_cast<std::size_t>(job.head_dim) * dtype_size(job.dtype);
  for (int64_t r = 0; r < job.num_rows; ++r) {
    if (w.plan().appended[static_cast<std::size_t>(r)].seq < 0) continue;
    for (int32_t h = 0; h < job.num_heads; ++h) {
      const std::size_t at = static_cast<std::size_t>(fill_offset(job, r, h)) * dtype_size(job.dtype);
      std::memcpy(cache.data() + at, added.data() + at, row_bytes);
    }
  }
  return cache;
}

/// The first row that differs, in words.
std::string first_difference(const Workload& w, bool is_v, const std::vector<unsigned char>& got,
                             const std::vector<unsigned char>& expected, WorstElement& worst) {
  const FillJob job = w.cache_job(is_v);
  const std::size_t e = dtype_size(job.dtype);
  for (int64_t r = 0; r < job.num_rows; ++r) {
    const RowOwner added = w.plan().appended[static_cast<std::size_t>(r)];
    const RowOwner kept = w.plan().kv_owners[static_cast<std::size_t>(r)];
    for (int32_t h = 0; h < job.num_heads; ++h) {
      for (int32_t c = 0; c < job.head_dim; ++c) {
        const std::size_t i = static_cast<std::size_t>(fill_offset(job, r, h) + c);
        if (std::memcmp(&got[i * e], &expected[i * e], e) == 0) continue;
        const RowOwner owner = added.seq >= 0 ? added : kept;
        const double g = load_float(job.dtype, got.data(), static_cast<int64_t>(i));
        const double x = load_float(job.dtype, expected.data(), static_cast<int64_t>(i));
        worst = {owner.seq, owner.pos, h, c, g, x, 0};
        return fmt::format("{} slot {} head {} channel {}: got {:.9g}, expected {:.9g} ({})",
                           is_v ? "v_cache" : "k_cache", r, h, c, g, x,
                           added.seq >= 0  ? fmt::format("seq {} pos {}, appended", added.seq, added.pos)
                           : kept.seq >= 0 ? fmt::format("seq {} pos {}, must stay", kept.seq, kept.pos)
                                           : "a slot that nothing may write");
      }
    }
  }
  return "bytes between rows differ";
}

}  // namespace

Verdict verify_append(const Workload& w, const HostOutputs& outputs) {
  const auto begin = std::chrono::steady_clock::now();
  Verdict v;
  v.pass = true;
  v.method = "bitwise";
  const int64_t rows = static_cast<int64_t>(w.plan().kv_owners.size()) * w.item().params.num_heads_kv;
  v.rows_total = v.rows = 2 * rows;
  for (const bool is_v : {false, true}) {
    const std::vector<unsigned char>& got = is_v ? outputs.v_cache : outputs.k_cache;
    const std::vector<unsigned char> expected = expected_cache(w, is_v, got.size());
    if (got == expected) continue;
    v.fail(detector::kCacheBits, first_difference(w, is_v, got, expected, v.worst));
    break;
  }
  v.reference_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return v;
}

}  // namespace attnbench
