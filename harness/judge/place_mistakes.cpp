// Mistakes in which rows of K and V a kernel reads.
#include <fmt/format.h>

#include <cstdlib>

#include "harness/judge/mistake_table.h"
#include "harness/tensors/plan.h"
#include "reference/plan.h"

namespace attnbench {
namespace {

class PlaceMistakes : MistakeTable {
 public:
  PlaceMistakes(const CaseParams& p, const P& right, const reference::Inputs& inputs)
      : MistakeTable(right, inputs), c_(p) {}

  std::vector<Mistake> all() && {
    packed_rows();
    slots();
    empty_not_counted();
    if (!c_.v_is_k_view) other_rows();
    if (c_.kv == KvSource::kPaged) {
      if (c_.seqs.size() > 1) other_tables();
      cut_tables();
    }
    return std::move(out_);
  }

 private:
  /// The rows of K and V of each sequence, found by the offsets of q.
  void packed_rows() {
    const auto longer = [](const SeqLen& s) { return s.k > s.q; };
    if (c_.kv != KvSource::kPacked || c_.gap_tokens > 0 || c_.gap_queries > 0 || c_.seqs.size() < 2) return;
    one_row_early();
    if (!std::any_of(c_.seqs.begin(), c_.seqs.end() - 1, longer)) return;
    if (std::ranges::any_of(c_.seqs, [](const SeqLen& s) { return s.q > s.k; })) return;
    misread("", "K and V of sequence b are read from row cu_seqlens_q[b] on, not cu_seqlens_k[b]",
            {.place = [&p = c_](Tensor, int seq, int pos) {
              int64_t row = pos;
              for (int b = 0; b < seq; ++b) row += p.seqs[static_cast<std::size_t>(b)].q;
              int from = 0;
              for (; row >= p.seqs[static_cast<std::size_t>(from)].k; ++from)
                row -= p.seqs[static_cast<std::size_t>(from)].k;
              return std::pair(from, static_cast<int>(row));
            }});
  }

  /// What a causal mask makes of lengths that hold unused rows. Rows that see one of these are NaN.
  void slots() {
    const auto longer = [by = c_.gap_tokens](P& x) {
      x.k_ends = x.k_lens;
      for (int& k : x.k_lens) k += by;
    };
    rows(
        {{c_.gap_tokens > 0 && p_.causal && !p_.top_left, "",
          "sequences are taken to fill their slots: cu_seqlens_k[b + 1] - cu_seqlens_k[b] keys, not seqused_k[b]",
          longer, false}});
  }

  /// All of cu_seqlens_k but its ends are one too small.
  void one_row_early() {
    if (std::ranges::any_of(c_.seqs, [](const SeqLen& s) { return s.k == 0; })) return;
    Mistake& m =
        misread("", "K and V of all sequences but the first begin one row early: cu_seqlens_k[b] - 1",
                {.place = [&p = c_](Tensor, int seq, int pos) {
                  if (seq == 0) return std::pair(seq, pos);
                  const auto before = static_cast<std::size_t>(seq - 1);
                  return pos > 0 ? std::pair(seq, pos - 1) : std::pair(seq - 1, p.seqs[before].k - 1);
                }});
    m.change = [](P& x) { --x.k_lens.front(), ++x.k_lens.back(); };
    m.change(m.problem);
    m.in_pairs = false;
  }

  /// Pages that another sequence's row of block_table names. Behind its keys nothing is known.
  void other_tables() {
    const auto n = static_cast<int>(c_.seqs.size());
    for (const auto& [text, by] : {std::pair("b + 1", 1), {"b - 1", n - 1}, {"0", 0}}) {
      misread("", fmt::format("sequence b reads the row of block_table of sequence {}", text),
              {.place = [&p = c_, n, by = by](Tensor, int seq, int pos) {
                const int other = by == 0 ? 0 : (seq + by) % n;
                return std::pair(pos < p.seqs[static_cast<std::size_t>(other)].k ? other : seq, pos);
              }});
      out_.back().in_pairs = false;
    }
  }

  /// Entries of block_table that are looked up elsewhere, or whose -1 is taken for the end.
  void cut_tables() {
    const int size = c_.block_size;
    if (c_.leftpad > 0) return;
    for (const int n : {16, 32, 64, 128, 256, 512, 1024}) {
      if (std::ranges::none_of(c_.seqs, [&](const SeqLen& s) { return s.k > n * size; })) continue;
      misread("", fmt::format("page i of a sequence is read from entry i % {} of block_table", n),
              {.place = [n, size](Tensor, int seq, int pos) { return std::pair(seq, pos % (n * size)); }})
          .in_pairs = false;
    }
    for (const int wrong : {size / 2, size / 4}) {
      if (wrong < 1) continue;
      misread("",
              fmt::format("keys are looked up in block_table with a block size of {}, not {}", wrong, size),
              {.place =
                   [&p = c_, size, wrong](Tensor, int seq, int pos) {
                     const int k = p.seqs[static_cast<std::size_t>(seq)].k;
                     const int at = std::min(pos / wrong, (k - 1) / size) * size + pos % wrong;
                     return std::pair(seq, at < k ? at : pos);
                   }})
          .in_pairs = false;
    }
    const auto freed = [right = &p_, size](std::size_t b) {
      return kJunkBlocks[(b + 1) % 2] < 0 && right->q_lens[b] > 0 &&
             reference::visible_keys(*right, static_cast<int>(b), 0).begin >= size;
    };
    rows({{c_.expired == Expired::kFreed, "",
           "sequences whose first block is freed (-1 in block_table) are taken as empty",
           cut([freed](std::size_t b, int k) { return freed(b) ? 0 : k; }), false}});
  }

  /// Sequences without queries are not counted: the next one gets K, V and the length of another sequence.
  void empty_not_counted() {
    std::vector<int> from, lens;
    int next = 0;
    bool any = false;
    for (const SeqLen& s : c_.seqs) {
      from.push_back(next);
      lens.push_back(c_.seqs[static_cast<std::size_t>(next)].k);
      any = any || (s.q > 0 && next + 1 < std::ssize(from));
      next += s.q > 0;
    }
    if (!any) return;
    Mistake& m =
        misread("", "sequences without queries are not counted: the next ones have K and V of others",
                {.place = [from](Tensor, int seq, int pos) {
                  return std::pair(from[static_cast<std::size_t>(seq)], pos);
                }});
    m.change = [lens](P& x) { x.k_lens = lens; };
    m.change(m.problem);
    m.in_pairs = false;
  }

  /// Rows of K, V or both that lie near the right ones.
  void other_rows() {
    /// Behind an end of a sequence: its own row is read, or the other end, or the next sequence, as memory has it.
    enum class End { kOwn, kWraps, kNext };
    const auto rows = [&](const char* name, bool k, bool v, int by, End end) {
      const auto text =
          fmt::format("row j {} {} of {} is read for key j{}", by < 0 ? "-" : "+", std::abs(by), name,
                      end == End::kWraps  ? ", round the ends of a sequence"
                      : end == End::kNext ? ", across the ends of sequences"
                                          : "");
      if (c_.kv == KvSource::kPaged && std::abs(by) == c_.block_size) return;  // misread_page.h tells it
      misread("", text, {.place = [=, &p = c_](Tensor of, int seq, int pos) {
                const auto keys = [&](int b) { return p.seqs[static_cast<std::size_t>(b)].k; };
                const std::pair right(seq, pos);
                if (!(of == Tensor::kK ? k : v)) return right;
                int at = pos + by, b = seq;
                if (end == End::kWraps) return std::pair(seq, (at + keys(seq)) % keys(seq));
                for (; end == End::kNext && at < 0 && b > 0; at += keys(b)) --b;
                for (; end == End::kNext && at >= keys(b) && b + 1 < std::ssize(p.seqs); ++b) at -= keys(b);
                return at < 0 || at >= keys(b) ? right : std::pair(b, at);
              }});
      out_.back().in_pairs = false;
    };
    for (const int by : {-1, 1}) {
      for (const End end : {End::kOwn, End::kWraps, End::kNext}) {
        if (end == End::kNext && (c_.kv != KvSource::kPacked || c_.gap_tokens > 0 || c_.seqs.size() < 2))
          continue;
        rows("V", false, true, by, end);
        rows("K", true, false, by, end);
        rows("K and V", true, true, by, end);
      }
    }
    for (const int by : {-128, -64, -32, -16, -8, -4, -2, 2, 4, 8, 16, 32, 64, 128}) {
      rows("V", false, true, by, End::kOwn);
      rows("K", true, false, by, End::kOwn);
    }
  }

  const CaseParams& c_;
};

}  // namespace

std::vector<Mistake> place_mistakes(const Case& c, const reference::Problem& right,
                                    const reference::Inputs& inputs) {
  return PlaceMistakes(c.params, right, inputs).all();
}

}  // namespace attnbench
