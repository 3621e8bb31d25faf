#include "reference/check.h"

#include <cmath>
#include <limits>
#include <stdexcept>

namespace attnbench::reference {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument("reference: " + what);
}

void check(const Problem& p) {
  require(p.head_dim >= 1, "head_dim must be at least 1, got " + std::to_string(p.head_dim));
  require(p.head_dim_v >= 0, "head_dim_v must not be negative, got " + std::to_string(p.head_dim_v));
  require(p.num_heads_q >= 1 && p.num_heads_kv >= 1 && p.num_heads_q % p.num_heads_kv == 0,
          "num_heads_kv (" + std::to_string(p.num_heads_kv) + ") must divide num_heads_q (" +
              std::to_string(p.num_heads_q) + ")");
  require(p.q_lens.size() == p.k_lens.size(), std::to_string(p.q_lens.size()) + " query lengths, but " +
                                                  std::to_string(p.k_lens.size()) + " key lengths");
  require(p.k_ends.empty() || p.k_ends.size() == p.k_lens.size(),
          "k_ends must be one per sequence, got " + std::to_string(p.k_ends.size()));
  require(p.q_begins.empty() || p.q_begins.size() == p.q_lens.size(),
          "q_begins must be one per sequence, got " + std::to_string(p.q_begins.size()));
  for (size_t b = 0; b < p.q_lens.size(); ++b) {
    require(p.q_lens[b] >= 0 && p.k_lens[b] >= 0, "negative length of sequence " + std::to_string(b));
  }
  for (int end : p.k_ends) require(end >= 0, "k_ends must not be negative");
  require(p.attention_chunk >= 0, "attention_chunk must not be negative");
  require(std::isfinite(p.softmax_scale), "softmax_scale must be finite");
  require(std::isfinite(p.softcap) && p.softcap >= 0.0, "softcap must be finite and not negative");
  require(p.p_dropout >= 0.0f && p.p_dropout < 1.0f, "p_dropout must be at least 0 and less than 1");
  const size_t heads = static_cast<size_t>(p.num_heads_q);
  require(p.alibi_slopes.empty() || p.alibi_slopes.size() == heads ||
              p.alibi_slopes.size() == heads * p.q_lens.size(),
          "alibi_slopes must be one per query head, or per sequence and query head, got " +
              std::to_string(p.alibi_slopes.size()));
  for (double slope : p.alibi_slopes) require(std::isfinite(slope), "alibi_slopes must be finite");
  require(p.sinks.empty() || p.sinks.size() == heads,
          "sinks must be one per query head, got " + std::to_string(p.sinks.size()));
  for (double sink : p.sinks) {
    require(sink < std::numeric_limits<double>::infinity(), "sinks must be finite, or -inf for none");
  }
}

void check(const Problem& p, std::span<const RowId> rows) {
  for (const RowId& r : rows) {
    require(r.seq >= 0 && r.seq < static_cast<int>(p.q_lens.size()) && r.pos >= 0 &&
                r.pos < p.q_lens[r.seq] && r.head >= 0 && r.head < p.num_heads_q,
            "no row (seq " + std::to_string(r.seq) + ", pos " + std::to_string(r.pos) + ", head " +
                std::to_string(r.head) + ") in the problem");
  }
}

}  // namespace attnbench::reference
