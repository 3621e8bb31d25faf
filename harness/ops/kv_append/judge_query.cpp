#include "harness/ops/kv_append/judge_query.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "harness/judge/interval.h"
#include "harness/ops/kv_append/tensors_scales.h"

namespace attnbench {
namespace {

std::string element_text(DType type, const std::vector<unsigned char>& memory, int64_t i) {
  return fmt::format("{:.9g}", static_cast<double>(load_float(type, memory.data(), i)));
}

}  // namespace

std::optional<std::string> check_query_out(const Workload& w, const AppendedRows& rows,
                                           const HostOutputs& outputs, WorstElement& worst,
                                           std::vector<unsigned char>& expected) {
  const CaseParams& p = w.item().params;
  const KvAppendParams a = Workload::shape_params(w.item(), w.padded()).kv_append;
  const DType type = a.dtype_query_out;
  const std::size_t size = dtype_size(type);
  const bool e4m3 = p.query_out == QueryOut::kE4m3;
  const bool copied = !e4m3 && p.rotary == Rotary::kNone;
  const double scale = e4m3 ? static_cast<double>(query_scale_of(w.item())) : 1.0;
  expected.assign(outputs.out.size(), 0xff);
  std::optional<std::string> wrong;
  const auto n = static_cast<std::size_t>(p.head_dim);
  std::vector<double> x(n), slack(n);
  const auto text = [&](std::size_t t, int32_t h, std::size_t c, int64_t at, const std::string& wanted) {
    const RowOwner o = w.plan().token_owners[t];
    worst = {o.seq, o.pos, h, static_cast<int>(c), load_float(type, outputs.out.data(), at), x[c] / scale, 0};
    return fmt::format("query_out of token {} head {} channel {}: got {}, expected {} (seq {} pos {})", t, h,
                       c, element_text(type, outputs.out, at), wanted, o.seq, o.pos);
  };
  for (std::size_t t = 0; t < w.plan().slot_mapping.size(); ++t) {
    const bool padding = w.plan().slot_mapping[t] < 0;
    for (int32_t h = 0; h < p.num_heads_q; ++h) {
      if (!padding) {
        const int32_t position = p.rotary == Rotary::kNone ? 0 : w.plan().positions[t];
        rows.query(w.plan().token_owners[t], position, h, x, slack);
      }
      const int64_t row = static_cast<int64_t>(t) * a.query_out_stride_token + h * a.query_out_stride_head;
      for (std::size_t c = 0; c < n; ++c) {
        const int64_t at = row + static_cast<int64_t>(c);
        const auto* got = &outputs.out[static_cast<std::size_t>(at) * size];
        if (padding) {
          if (wrong || std::all_of(got, got + size, [](unsigned char byte) { return byte == 0xff; }))
            continue;
          wrong = fmt::format(
              "query_out of token {} head {} channel {}: got {}, and nothing may be written: "
              "the token is padding",
              t, h, c, element_text(type, outputs.out, at));
          continue;
        }
        auto* wanted = &expected[static_cast<std::size_t>(at) * size];
        const Interval real{x[c] - slack[c], x[c] + slack[c]};
        const Interval allowed = rounded_to(type, e4m3 ? quotient(real, scale) : real);
        bool right = true;
        if (copied) {
          store_float(type, expected.data(), at, static_cast<float>(x[c]));
          right = std::memcmp(wanted, got, size) == 0;
        } else {
          right = contains(allowed, static_cast<double>(load_float(type, outputs.out.data(), at)));
          store_float(type, expected.data(), at, static_cast<float>(x[c] / scale));
          if (right) std::memcpy(wanted, got, size);
        }
        if (!right && !wrong) wrong = text(t, h, c, at, fmt::format("{:.9g}", x[c] / scale));
      }
    }
  }
  if (wrong || outputs.out == expected) return wrong;
  return "query_out: bytes between rows differ";
}

}  // namespace attnbench
