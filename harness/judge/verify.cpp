#include "harness/judge/verify.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "harness/judge/bitwise.h"
#include "harness/ops/judge_ops.h"

namespace attnbench {

Verdict verify(const Workload& workload, const HostOutputs& outputs, const Numerics& numerics,
               const Check& check, int num_threads) {
  return judge_ops(workload.item().params.op).verify(workload, outputs, numerics, check, num_threads);
}

Verdict verify_launch(const Case& c, const HostOutputs& outputs, const Numerics& numerics, const Check& check,
                      int num_threads) {
  return judge_ops(c.params.op).verify_launch(c, outputs, numerics, check, num_threads);
}

ExpectedOutputs expected_outputs(const Workload& w, const HostOutputs& got, const Numerics& numerics,
                                 const Check& check, int num_threads) {
  ExpectedOutputs e;
  judge_ops(w.item().params.op).expect(w, got, numerics, check, num_threads, e);
  return e;
}

void put_bits(ExpectedOutput& to, DType type, const unsigned char* expected, const unsigned char* got,
              const HostBytes* holes) {
  const std::size_t size = dtype_size(type);
  for (std::size_t i = 0; i < to.value.size(); ++i) {
    if (holes != nullptr && holes->in_hole(static_cast<int64_t>(i * size))) continue;
    const bool right = std::memcmp(expected + i * size, got + i * size, size) == 0;
    if (right && !std::isnan(to.sigma[i])) continue;
    to.value[i] = load_float(type, expected, static_cast<int64_t>(i));
    to.sigma[i] = right ? 0.0f : -1.0f;
  }
}

ExpectedOutput not_compared(const char* name, std::vector<int64_t> shape) {
  std::size_t count = 1;
  for (const int64_t n : shape) count *= static_cast<std::size_t>(n);
  return {name, std::move(shape), std::vector<double>(count, std::numeric_limits<double>::quiet_NaN()),
          std::vector<float>(count, std::numeric_limits<float>::quiet_NaN())};
}

std::vector<int64_t> q_begins(const CaseParams& p) {
  std::vector<int64_t> begins = {0};
  for (const SeqLen& s : p.seqs) begins.push_back(begins.back() + s.q);
  return begins;
}

HostOutputs laid_over(const Case& c, HostOutputs base, const Case& other_case, const HostOutputs& other,
                      std::span<const int32_t> ids) {
  return judge_ops(c.params.op).laid_over(c.params, std::move(base), other_case.params, other, ids);
}

std::optional<std::string> first_difference(const Case& c, const HostOutputs& a, const HostOutputs& b) {
  return judge_ops(c.params.op).first_difference(c.params, a, b);
}

}  // namespace attnbench
