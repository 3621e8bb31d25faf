// Values of q, K and V that were captured from a running program, in place of drawn ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/given_blocks.h"
#include "harness/values/values.h"

namespace attnbench {

/// Tensors as a file holds them, read by sequence, position and head. They are of one 16- or 32-bit type.
class CapturedTensors {
 public:
  /// One tensor. Row (token or block and token, head) has `dim` elements; strides are in elements.
  struct Rows {
    std::vector<unsigned char> bytes;
    int64_t stride_block = 0, stride_token = 0, stride_head = 0;
    int32_t heads = 0, dim = 0;
  };
  struct Parts {
    std::string path;  ///< of the file
    DType dtype = DType::kBf16;
    Rows q, k, v;                  ///< v without bytes: it is a view of k
    std::vector<int32_t> q_begin;  ///< first token of each sequence in q
    std::vector<int32_t> k_begin;  ///< packed: the same in K and V
    GivenBlocks::Ids blocks;       ///< paged: blocks of each sequence
    int32_t block_size = 0;        ///< 0: packed
  };
  explicit CapturedTensors(Parts parts);

  const std::string& path() const { return parts_.path; }
  DType dtype() const { return parts_.dtype; }
  const std::string& digest() const { return digest_; }  ///< 8 hexadecimal digits of types, shapes and values
  /// Rows (tokens) of q in the file, and the one of a query.
  int64_t q_rows() const;
  int64_t q_row(int32_t seq, int32_t pos) const {
    return parts_.q_begin[static_cast<std::size_t>(seq)] + int64_t{pos};
  }
  /// The row of q, K or V (kQ, kK, kV) of a key or query.
  const unsigned char* row(Tensor tensor, int32_t seq, int32_t pos, int32_t head) const;

 private:
  const Rows& rows_of(Tensor tensor) const {
    return tensor == Tensor::kQ ? parts_.q : tensor == Tensor::kV ? parts_.v : parts_.k;
  }
  Parts parts_;
  std::string digest_;
};

}  // namespace attnbench
