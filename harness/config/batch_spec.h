// The batch grammar. A spec is segments joined by '_'; a segment is [COUNT]qLEN[k|m][sTOTAL[k|m]].
// It stands for COUNT sequences (default 1) with LEN query tokens and TOTAL key tokens (default LEN) each;
// k = 1024, m = 1024^2. "8q1s1k_1q512" is a step with eight decodes at 1,024 tokens and one prefill of 512.
// The grammar covers every spec that vLLM's attention benchmark writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/config/case_params.h"
#include "harness/error.h"

namespace attnbench {

/// A spec that cannot be read. what() says what is wrong; `offset` is the place in the spec, in bytes from 0.
class BatchSpecError : public Error {
 public:
  BatchSpecError(const std::string& what, std::size_t at) : Error(what), offset(at) {}
  std::size_t offset;
};

/// Most tokens of one sequence and most sequences of a batch.
inline constexpr int64_t kMaxSeqLen = int64_t{1} << 30;
inline constexpr int64_t kMaxBatch = int64_t{1} << 20;
/// Most query tokens of a batch, and most key tokens: cu_seqlens_q and cu_seqlens_k are int32.
inline constexpr int64_t kMaxTotalTokens = (int64_t{1} << 31) - 1;

/// A spec as errors show it: cut where it is long.
std::string shown_spec(std::string_view spec);

/// Returns the lengths of every sequence, in tokens. s < q is legal here, because only the mask decides
/// whether it makes sense. Errors: BatchSpecError.
std::vector<SeqLen> parse_batch_spec(std::string_view spec);

/// The shortest spec that parses back to these lengths: equal neighbours are counted, multiples of 1024 get
/// k, multiples of 1024^2 get m. An empty batch is "0q0".
std::string format_batch_spec(const std::vector<SeqLen>& seqs);

/// The batch's part of an id: the spec if it is short, else counts and a digest of the lengths.
std::string batch_label(const std::vector<SeqLen>& seqs);

}  // namespace attnbench
