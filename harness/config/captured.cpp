#include "harness/config/captured.h"

#include <fmt/format.h>

#include "harness/digest.h"

namespace attnbench {

CapturedTensors::CapturedTensors(Parts parts) : parts_(std::move(parts)) {
  Digest digest;
  digest.add_word(static_cast<uint64_t>(parts_.dtype));
  for (const Rows* rows : {&parts_.q, &parts_.k, &parts_.v}) {
    digest.add_word(static_cast<uint64_t>(rows->heads) << 32 | static_cast<uint32_t>(rows->dim));
    digest.add_word(rows->bytes.size());
    uint64_t word = 0;
    for (std::size_t i = 0; i < rows->bytes.size(); ++i) {
      word = word << 8 | rows->bytes[i];
      if (i % 8 == 7) digest.add_word(word ^ word >> 29);
    }
    digest.add_word(word);
  }
  digest_ = fmt::format("{:08x}", digest.value32());
}

int64_t CapturedTensors::q_rows() const {
  const int64_t row = parts_.q.stride_token * static_cast<int64_t>(dtype_size(parts_.dtype));
  return row == 0 ? 0 : std::ssize(parts_.q.bytes) / row;
}

const unsigned char* CapturedTensors::row(Tensor tensor, int32_t seq, int32_t pos, int32_t head) const {
  const Rows& rows = rows_of(tensor);
  const auto b = static_cast<std::size_t>(seq);
  int64_t at = head * rows.stride_head;
  if (tensor == Tensor::kQ) {
    at += q_row(seq, pos) * rows.stride_token;
  } else if (parts_.block_size == 0) {
    at += (parts_.k_begin[b] + int64_t{pos}) * rows.stride_token;
  } else {
    const int32_t block = parts_.blocks[b][static_cast<std::size_t>(pos / parts_.block_size)];
    at += block * rows.stride_block + pos % parts_.block_size * rows.stride_token;
  }
  return rows.bytes.data() + at * static_cast<int64_t>(dtype_size(parts_.dtype));
}

}  // namespace attnbench
