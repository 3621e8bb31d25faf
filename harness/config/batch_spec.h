// The batch grammar: segments joined by '_', each [COUNT]qLEN[k|m][sTOTAL[k|m]]: COUNT sequences with LEN
// query tokens and TOTAL key tokens in all (s defaults to q; k = 1024, m = 1024^2). "8q1s1k_1q512" is a step
// with eight decodes at 1,024 tokens and one prefill of 512. It reads every spec that vLLM's attention
// benchmark writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/config/case_params.h"
#include "harness/error.h"

namespace attnbench {

/// A spec that cannot be read: what() says what is wrong, `offset` where (characters from 0).
class BatchSpecError : public Error {
 public:
  BatchSpecError(const std::string& what, std::size_t at) : Error(what), offset(at) {}
  std::size_t offset;
};

/// Longest sequence and largest batch that a spec may ask for.
inline constexpr int64_t kMaxSeqLen = int64_t{1} << 30;
inline constexpr int64_t kMaxBatch = int64_t{1} << 20;
/// Most tokens of a batch, queries and keys each: cu_seqlens_q and cu_seqlens_k are int32.
inline constexpr int64_t kMaxTotalTokens = (int64_t{1} << 31) - 1;

/// A spec as errors show it: cut where it is long.
std::string shown_spec(std::string_view spec);

/// The lengths that a spec asks for; s < q is legal here, since whether it makes sense depends on the mask.
/// Errors: BatchSpecError.
std::vector<SeqLen> parse_batch_spec(std::string_view spec);

/// The shortest spec that parses back to these lengths: equal neighbours are counted, multiples of 1024 get
/// k, multiples of 1024^2 get m. An empty batch is "0q0".
std::string format_batch_spec(const std::vector<SeqLen>& seqs);

/// The batch's part of an id: the spec itself where it is short, else counts and a digest of the lengths.
std::string batch_label(const std::vector<SeqLen>& seqs);

}  // namespace attnbench
