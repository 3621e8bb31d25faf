#include "harness/tensors/descales.h"

#include <algorithm>
#include <limits>

#include "harness/cases/kv_rows.h"
#include "harness/tensors/strides.h"

namespace attnbench {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargestO = 1.5f;  ///< of values with a deviation of 1: rows of few keys saturate

DType type_of(const CaseParams& p, Tensor tensor) {
  return tensor == Tensor::kQ ? p.type_of_q() : tensor == Tensor::kK ? p.type_of_k() : p.type_of_v();
}

DescalesPer granularity(const CaseParams& p, Tensor tensor) {
  return tensor == Tensor::kQ ? p.q_descales : p.descales_of(tensor == Tensor::kV);
}

/// One of the steps for a row of q, K or V.
float row_step(Tensor tensor, int32_t seq, int64_t pos, int64_t head) {
  if (tensor == Tensor::kV) return scale_step(4 * pos + 7 * head + 2 * seq + 1);
  const int64_t a = tensor == Tensor::kQ ? 2 : 5;
  return scale_step(a * pos + (7 - a) * head + seq);
}

/// Descales of an e4m3 or e5m2 tensor with its descale_strides: (B, Hkv), or fewer where a stride is 0. V that is a
/// view of K has K's numbers.
std::vector<float> of_fp8(const Case& c, const LayoutVariant& variant, Tensor tensor) {
  const CaseParams& p = c.params;
  const DescaleStrides s = descale_strides(p, tensor, variant.padded_strides);
  const Tensor source = tensor == Tensor::kV && p.v_is_k_view ? Tensor::kK : tensor;
  if (p.seqs.empty()) return {};
  const std::size_t sequences = s.outer > 0 ? p.seqs.size() : 1;
  const int64_t of_sequence = s.outer > 0 ? s.outer : std::max<int64_t>(1, p.num_heads_kv * s.head);
  std::vector<float> out(sequences * static_cast<std::size_t>(of_sequence), kNan);
  for (std::size_t b = 0; b < sequences; ++b) {
    for (int32_t h = 0; h < (s.head > 0 ? p.num_heads_kv : 1); ++h) {
      const int32_t head = source == Tensor::kQ ? h * (p.num_heads_q / p.num_heads_kv) : h;
      out[b * static_cast<std::size_t>(s.outer) + static_cast<std::size_t>(h * s.head)] =
          descale_of(c, source, variant.seq_id(b), 0, head, 0);
    }
  }
  return out;
}

/// Descales of V, one per (KV head, channel).
std::vector<float> of_channels(const Case& c, const LayoutVariant& variant) {
  const CaseParams& p = c.params;
  const auto head = static_cast<std::size_t>(descale_strides(p, Tensor::kV, variant.padded_strides).head);
  std::vector<float> out(static_cast<std::size_t>(p.num_heads_kv) * head, kNan);
  for (int32_t h = 0; h < p.num_heads_kv; ++h) {
    for (int32_t ch = 0; ch < p.dim_v(); ++ch) {
      out[static_cast<std::size_t>(h) * head + static_cast<std::size_t>(ch)] =
          descale_of(c, Tensor::kV, 0, 0, h, ch);
    }
  }
  return out;
}

/// Descales of q or packed K, one per (block of `rows` rows, head).
std::vector<float> of_blocks(const Case& c, const LayoutVariant& variant, Tensor tensor, int32_t rows,
                             const DescaleStrides& s) {
  const CaseParams& p = c.params;
  const std::vector<int32_t> begins = descale_begins(p, tensor, rows);
  std::vector<float> out(static_cast<std::size_t>((begins.back() + kTailRows) * s.outer), kNan);
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    for (int32_t block = begins[b]; block < begins[b + 1]; ++block) {
      for (int32_t h = 0; h < (tensor == Tensor::kQ ? p.num_heads_q : p.num_heads_kv); ++h) {
        out[static_cast<std::size_t>(block * s.outer + h * s.head)] =
            descale_of(c, tensor, variant.seq_id(b), (block - begins[b]) * rows, h, 0);
      }
    }
  }
  return out;
}

/// Descales of K or V, one per (row, KV head). V that is a view of K has K's numbers.
std::vector<float> of_rows(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant, bool is_v) {
  const Tensor source = is_v && !c.params.v_is_k_view ? Tensor::kV : Tensor::kK;
  const KvStrides s = row_scale_strides(c.params, is_v, variant.padded_strides);
  const int32_t shared = is_v ? 1 : c.params.k_descale_rows;
  if (shared > 1 && c.params.kv == KvSource::kPacked)
    return of_blocks(c, variant, source, shared, {s.token, s.head});
  const int64_t in_block = shared > 1 ? kv_strides(c.params, is_v).rows : 1;  // rows of K
  const int64_t of_block = shared > 1 ? s.rows : 1;                           // their descales
  std::vector<float> out(
      static_cast<std::size_t>(s.elements(std::ssize(plan.kv_owners) / in_block * of_block)), kNan);
  for (std::size_t r = 0; r < plan.kv_owners.size(); ++r) {
    const bool is_new = !plan.appended.empty() && plan.appended[r].seq >= 0;
    const RowOwner& o = is_new ? plan.appended[r] : plan.kv_owners[r];
    const auto row = static_cast<int64_t>(r);
    const int64_t at = row / in_block * of_block + row % in_block / shared;
    for (int32_t h = 0; o.seq >= 0 && h < c.params.num_heads_kv; ++h)
      out[static_cast<std::size_t>(s.offset(at, h))] = descale_of(c, source, o.seq, o.pos, h, 0);
  }
  return out;
}

}  // namespace

float descale_of(const Case& c, Tensor tensor, int32_t seq, int32_t pos, int32_t head, int32_t channel) {
  const CaseParams& p = c.params;
  const DType type = type_of(p, tensor);
  const int32_t row = tensor == Tensor::kK ? pos / p.k_descale_rows : pos;
  if (tensor != Tensor::kQ && p.kv_dtype == KvDType::kDsMla) return 1.0f;
  if (type == DType::kE2m1x2)
    return scale_step(tensor == Tensor::kK ? 3 : 5) / stored_factor(type, p.data, tensor);
  if (is_fp8(type)) {
    const int32_t kv_head = tensor == Tensor::kQ ? head / (p.num_heads_q / p.num_heads_kv) : head;
    const int64_t a = tensor == Tensor::kQ ? 2 : tensor == Tensor::kK ? 3 : 5;
    switch (granularity(p, tensor)) {
      case DescalesPer::kUsual:
        return scale_step(a * descale_seq(p, seq) + (7 - a) * kv_head + a);
      case DescalesPer::kHead:
        return scale_step((7 - a) * kv_head + a);
      case DescalesPer::kTensor:
        return scale_step(a);
      case DescalesPer::kChannel:
        return scale_step(int64_t{4} * kv_head + int64_t{2} * channel + 1);
      case DescalesPer::kToken:
        return row_step(tensor, seq, row, kv_head);
    }
  }
  if (type != DType::kInt8) return 1.0f;
  const float unit = 1.0f / int8_factor(p.data, tensor);
  if (tensor == Tensor::kV && !p.row_descales(true))
    return unit * scale_step(int64_t{4} * head + int64_t{2} * channel + 1);
  return unit * row_step(tensor, seq, tensor == Tensor::kQ ? pos / p.q_descale_rows : row, head);
}

float stored_value(const Case& c, Tensor tensor, float value) {
  const DType type = type_of(c.params, tensor);
  return round_to(type, value * stored_factor(type, c.params.data, tensor));
}

GivenBlocks::Row stored_row(const CaseParams& p, int32_t seq, int32_t pos) {
  if (p.blocks) return p.blocks->owner(seq, pos);
  return {pos < p.shared_tokens() ? 0 : seq, pos};
}

float block_scale_at(const Case& c, Tensor tensor, int32_t seq, int32_t pos, int32_t head, int32_t block) {
  return block_scale({c.seed, c.params.data}, tensor, static_cast<uint32_t>(seq), static_cast<uint32_t>(pos),
                     static_cast<uint32_t>(head), static_cast<uint32_t>(block));
}

float scaled_value(const Case& c, Tensor tensor, int32_t seq, int32_t pos, int32_t head, int32_t channel,
                   float value) {
  const CaseParams& p = c.params;
  if (is_query(tensor) || p.scale_block() == 0) return stored_value(c, tensor, value);
  if (p.k_tail() > 0 && channel >= p.dim_v()) return round_to(DType::kBf16, value);
  return stored_value(c, tensor, value) *
         block_scale_at(c, tensor, seq, pos, head, channel / p.scale_block());
}

std::vector<int32_t> descale_begins(const CaseParams& p, Tensor tensor, int32_t rows) {
  std::vector<int32_t> begins = {1};
  for (const SeqLen& s : p.seqs)
    begins.push_back(begins.back() + ((tensor == Tensor::kQ ? s.q : s.k) + rows - 1) / rows);
  return begins;
}

std::vector<float> q_descales_of(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant) {
  const CaseParams& p = c.params;
  if (is_fp8(p.type_of_q())) return of_fp8(c, variant, Tensor::kQ);
  if (p.type_of_q() != DType::kInt8) return {};
  const DescaleStrides s = descale_strides(p, Tensor::kQ, variant.padded_strides);
  if (p.q_descale_rows > 1) return of_blocks(c, variant, Tensor::kQ, p.q_descale_rows, s);
  std::vector<float> out(plan.q_owners.size() * static_cast<std::size_t>(s.outer), kNan);
  for (std::size_t t = 0; t < plan.q_owners.size(); ++t) {
    const RowOwner& o = plan.q_owners[t];
    for (int32_t h = 0; o.seq >= 0 && h < p.num_heads_q; ++h) {
      out[t * static_cast<std::size_t>(s.outer) + static_cast<std::size_t>(h * s.head)] =
          descale_of(c, Tensor::kQ, o.seq, o.pos, h, 0);
    }
  }
  return out;
}

std::vector<float> kv_descales_of(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant,
                                  bool is_v) {
  const CaseParams& p = c.params;
  const Tensor tensor = is_v ? Tensor::kV : Tensor::kK;
  if (p.type_of_kv(is_v) == DType::kE2m1x2)
    return {descale_of(c, p.v_is_k_view ? Tensor::kK : tensor, 0, 0, 0, 0)};
  if (p.row_descales(is_v)) return of_rows(c, plan, variant, is_v);
  const bool fp8 = has_fp8_descales(p, is_v);
  if (fp8 && p.descales_of(is_v) != DescalesPer::kChannel) return of_fp8(c, variant, tensor);
  return fp8 || p.type_of_kv(is_v) == DType::kInt8 ? of_channels(c, variant) : std::vector<float>{};
}

float out_scale_of(const Case& c) {
  const CaseParams& p = c.params;
  if (!p.e4m3_out) return 1.0f;
  const Tensor values = p.does().merges ? Tensor::kPartialO : p.v_is_k_view ? Tensor::kK : Tensor::kV;
  const float largest = p.data == Profile::kHuge && values == Tensor::kK ? kHugeK
                        : p.data == Profile::kCorners                    ? kCornersLargest
                                                      : kLargestO * profile_scale(p.data, values, 0, 0);
  return largest / 448.0f * scale_step(static_cast<int64_t>(c.seed % 9));
}

}  // namespace attnbench
