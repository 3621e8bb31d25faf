#include "harness/tensors/sign_plan.h"

#include <algorithm>

#include "harness/cases/kv_rows.h"
#include "harness/values/fill.h"

namespace attnbench {
namespace {

constexpr int32_t kFewChannels = 4;  ///< a word of 8 bytes, in 16-bit types
/// 32 bytes of 16-bit types, as much as a GPU's memory delivers at once: changing them is cheap.
constexpr int32_t kChangedChannels = 16;

struct Shape {
  int32_t rows, dim;
  std::size_t size() const { return static_cast<std::size_t>(rows) * static_cast<std::size_t>(dim); }
};

Shape qk_shape(const CaseParams& p) {
  if (p.does().merges) return {0, 0};
  return {p.num_heads_kv, p.head_dim};
}
Shape v_shape(const CaseParams& p) {
  return p.does().merges ? Shape{p.num_heads_q, p.head_dim} : Shape{p.num_heads_kv, p.dim_v()};
}

/// Whether signs must stay: new rows are rounded to int8 with a given scale, or K and V interleave, for which
/// there is no table of signs.
bool keeps_signs(const CaseParams& p, bool is_v) {
  return p.one_row || (p.rounds_new(is_v) && p.type_of_kv(is_v) == DType::kInt8 && !p.computes_scales(is_v));
}

/// The first channel of those that change sign together with `channel`: those that turn together, or are in one byte.
int32_t turned_with(const CaseParams& p, int32_t channel) {
  if (p.kv_dtype == KvDType::kNvfp4) return channel / 2 * 2;
  const int32_t width = p.rotary_width();
  if (p.rotary == Rotary::kNone || channel >= width) return channel;
  return p.rotary == Rotary::kInterleaved ? channel / 2 * 2 : channel % (width / 2);
}

void share_with_v(const CaseParams& p, SignPlan& s) {
  if (!p.v_is_k_view) return;
  const Shape qk = qk_shape(p), v = v_shape(p);
  for (int32_t h = 0; h < v.rows; ++h) {
    const auto from = s.qk.begin() + static_cast<std::ptrdiff_t>(h) * qk.dim;
    std::copy_n(from, v.dim, s.v.begin() + static_cast<std::ptrdiff_t>(h) * v.dim);
  }
}

}  // namespace

std::vector<uint8_t> row_signs(const CaseParams& p, const SignPlan& signs) {
  std::vector<uint8_t> out;
  if (p.kv_dtype != KvDType::kDsMla) return out;
  const DsMlaRow row = ds_mla_row(p);
  const auto d = static_cast<std::size_t>(p.head_dim), dv = static_cast<std::size_t>(p.dim_v());
  for (std::size_t h = 0; h < static_cast<std::size_t>(p.num_heads_kv); ++h) {
    const uint8_t* of_head = signs.qk.data() + h * d;
    out.insert(out.end(), of_head, of_head + dv);
    out.insert(out.end(), static_cast<std::size_t>(row.scales), 0);
    for (std::size_t c = dv; c < d; ++c) {  // bf16: the sign is in the upper byte
      out.push_back(0);
      out.push_back(of_head[c]);
    }
  }
  return out;
}

SignPlan plain_signs(const CaseParams& p) {
  SignPlan s;
  s.qk.assign(qk_shape(p).size(), 0);
  s.v.assign(v_shape(p).size(), 0);
  return s;
}

SignPlan other_signs(const CaseParams& p, SignPlan signs, uint64_t seed) {
  const auto change_rows = [&p, seed](std::vector<uint8_t>& table, Shape shape, uint64_t stream,
                                      auto drawn_for) {
    for (int32_t h = 0; h < shape.rows; ++h) {
      const uint64_t word = digest_word(seed, stream + static_cast<uint64_t>(h)) | 1;
      const auto place = static_cast<int32_t>((word >> kChangedChannels) % static_cast<uint64_t>(shape.dim));
      const int32_t first = drawn_for(p, place) / kChangedChannels * kChangedChannels;
      for (int32_t c = 0; c < shape.dim; ++c) {
        const int32_t i = drawn_for(p, c) - first;
        if (i < 0 || i >= kChangedChannels) continue;
        table[static_cast<std::size_t>(h) * static_cast<std::size_t>(shape.dim) +
              static_cast<std::size_t>(c)] ^= static_cast<uint8_t>(word >> i & 1);
      }
    }
  };
  if (!keeps_signs(p, false)) change_rows(signs.qk, qk_shape(p), 0, turned_with);
  const auto itself = [](const CaseParams& x, int32_t channel) {
    return x.kv_dtype == KvDType::kNvfp4 ? turned_with(x, channel) : channel;
  };
  if (!keeps_signs(p, true)) change_rows(signs.v, v_shape(p), uint64_t{1} << 32, itself);
  share_with_v(p, signs);
  return signs;
}

FewChannels few_channels(const CaseParams& p, uint64_t seed) {
  const Shape shape = v_shape(p);
  if (keeps_signs(p, true) || shape.size() == 0) return {};
  FewChannels few;
  few.head = static_cast<int32_t>(digest_word(seed, 0) % static_cast<uint64_t>(shape.rows));
  few.first = static_cast<int32_t>(digest_word(seed, 1) % static_cast<uint64_t>(shape.dim)) / kFewChannels *
              kFewChannels;
  few.count = std::min(kFewChannels, shape.dim - few.first);
  // K and V are one tensor, so a channel brings along the one that turns with it.
  if (p.v_is_k_view && p.rotary != Rotary::kNone) few.count = 0;
  return few;
}

SignPlan changed_in(const CaseParams& p, SignPlan s, const FewChannels& few) {
  const int32_t dim = p.v_is_k_view ? p.head_dim : v_shape(p).dim;
  std::vector<uint8_t>& table = p.v_is_k_view ? s.qk : s.v;
  for (int32_t c = few.first; c < few.first + few.count; ++c) {
    uint8_t& sign = table[static_cast<std::size_t>(few.head) * static_cast<std::size_t>(dim) +
                          static_cast<std::size_t>(c)];
    sign = static_cast<uint8_t>(1 - sign);
  }
  share_with_v(p, s);
  return s;
}

}  // namespace attnbench
