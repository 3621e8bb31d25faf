// What one case asks for: plain data, set by the keys of the YAML format (keys.h), independent of any device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/values/values.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

enum class KvSource { kPacked, kPaged };
enum class KvLayout { kNhd, kHnd };
enum class PageLayout { kContiguous, kShuffled };

/// Query and key length of one sequence, in tokens.
struct SeqLen {
  int32_t q = 0;
  int32_t k = 0;
  bool operator==(const SeqLen&) const = default;
};

struct CaseParams {
  Op op = Op::kAttention;
  DType dtype = DType::kBf16;
  int32_t num_heads_q = 32;
  int32_t num_heads_kv = 8;
  int32_t head_dim = 128;

  std::vector<SeqLen> seqs;  ///< from `batch`; empty is legal (no sequence)
  bool allow_short_kv = false;

  KvSource kv = KvSource::kPacked;
  KvLayout kv_layout = KvLayout::kNhd;
  int32_t block_size = 16;
  PageLayout page_layout = PageLayout::kShuffled;
  int32_t gap_tokens = 0;  ///< packed: unused rows after each sequence's keys (seqused_k is passed)

  bool causal = false;
  int32_t window_left = -1;
  int32_t window_right = -1;
  std::optional<double> softmax_scale;  ///< default 1/sqrt(head_dim)
  double softcap = 0.0;

  int32_t padding_tokens = 0;  ///< kv_append: tokens whose slot is -1, spread over the batch

  Profile data = Profile::kNormal;

  bool operator==(const CaseParams&) const = default;
};

}  // namespace attnbench
