// Mistakes in what a kernel makes of a row of q, K or V: its type, its channels, its head, its rotation.
#include <fmt/format.h>

#include <iterator>

#include "harness/cases/cost.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/mistake_table.h"
#include "harness/tensors/descales.h"

namespace attnbench {
namespace {

/// Another case and its inputs.
struct OtherCase {
  explicit OtherCase(Case of) : item(std::move(of)) {}
  Case item;
  std::vector<unsigned char> no_new_rows = {};
  CaseInputs inputs{item, no_new_rows};
};

/// The number that the bits of `x` in `from` are in `to`, a type of the same size.
double read_as(DType from, DType to, double x) {
  unsigned char bits[sizeof(float)] = {};
  store_float(from, bits, 0, static_cast<float>(x));
  return static_cast<double>(load_float(to, bits, 0));
}

class InputMistakes : MistakeTable {
 public:
  InputMistakes(const Case& c, const P& right, const reference::Inputs& inputs)
      : MistakeTable(right, inputs), case_(c), c_(c.params) {}

  std::vector<Mistake> all() && {
    types();
    channels();
    query_heads();
    if (c_.rotary != Rotary::kNone) query_positions();
    if (c_.rotary_cached) key_positions();
    rows({{c_.append, "", "the new tokens are not attended", [&p = c_](P& x) {
             for (std::size_t b = 0; b < x.k_lens.size(); ++b) x.k_lens[b] -= p.new_len(p.seqs[b]);
           }}});
    return std::move(out_);
  }

 private:
  using Row = std::span<double>;

  void types() {
    const DType kv = c_.type_of_k(), type = c_.dtype;
    if (c_.type_of_q() == type && kv == type && c_.type_of_v() == type && dtype_size(type) == 2) {
      const DType other = type == DType::kBf16 ? DType::kFp16 : DType::kBf16;
      Mistake& m = misread("", fmt::format("bits of {} are read as {}", dtype_name(type), dtype_name(other)),
                           {.change = [=](Tensor, int, int, int, Row row) {
                             for (double& x : row) x = read_as(type, other, x);
                           }});
      Case item = case_;
      item.params.dtype = other;  // O, too
      m.item = std::make_shared<Case>(item);
      m.in_pairs = false;
    }
    if (!is_fp8(kv) || c_.type_of_v() != kv || c_.kv_dtype == KvDType::kDsMla) return;
    const DType other = kv == DType::kE4m3 ? DType::kE5m2 : DType::kE4m3;
    misread("", fmt::format("K and V in {} are read as {}", dtype_name(kv), dtype_name(other)),
            {.change =
                 [=, &c = case_](Tensor of, int seq, int pos, int head, Row row) {
                   if (of != Tensor::kK && of != Tensor::kV) return;
                   const int owner = pos < c.params.shared_tokens() ? 0 : seq;
                   for (std::size_t i = 0; i < row.size(); ++i) {
                     const auto scale =
                         static_cast<double>(descale_of(c, of, owner, pos, head, static_cast<int>(i)));
                     row[i] = read_as(kv, other, row[i] / scale) * scale;
                   }
                 }})
        .in_pairs = false;
  }

  void channels() {
    for (const int n : {8, 16, 32, 64, 128}) {
      if (n >= c_.head_dim) continue;
      misread("", fmt::format("the last {} channels of q and K are left out of the scores", n),
              {.change =
                   [n](Tensor of, int, int, int, Row row) {
                     if (of == Tensor::kQ) std::fill(row.end() - n, row.end(), 0.0);
                   }})
          .in_pairs = false;
    }
    if (!c_.v_is_k_view || c_.head_dim == c_.dim_v()) return;
    misread("", "V is taken from the last head_dim_v channels of K, not from the first",
            {.change = [&in = inputs_, d = c_.head_dim](Tensor of, int seq, int pos, int head, Row row) {
              if (of != Tensor::kV) return;
              std::vector<double> k(static_cast<std::size_t>(d));
              in.load_k(seq, head, pos, pos + 1, k.data());
              std::copy(k.end() - std::ssize(row), k.end(), row.begin());
            }});
  }

  void query_heads() {
    const int heads = c_.num_heads_q;
    const auto next = [&](const char* name, Tensor tensor, bool applies) {
      if (!applies || heads < 2) return;
      misread("", fmt::format("query head h has {} of head h + 1", name),
              {.change =
                   [&in = inputs_, heads, tensor](Tensor of, int seq, int pos, int head, Row row) {
                     if (of != tensor) return;
                     const int other = (head + 1) % heads;
                     if (of == Tensor::kQ) return in.load_q(seq, other, pos, pos + 1, row.data());
                     in.load_qv(seq, other, pos, pos + 1, row.data());
                   }})
          .in_pairs = false;
    };
    next("q", Tensor::kQ, true);
    next("qv", Tensor::kQv, p_.qv);
  }

  /// The queries are those of a case that differs in its rotation.
  void with_queries_of(const std::string& text, CaseParams params) {
    Case other = case_;
    other.params = std::move(params);
    misread(
        "", text,
        {.change =
             [of = std::make_shared<OtherCase>(other)](Tensor tensor, int seq, int pos, int head, Row row) {
               if (tensor == Tensor::kQ) of->inputs.load_q(seq, head, pos, pos + 1, row.data());
             }})
        .in_pairs = false;
  }

  void query_positions() {
    CaseParams other = c_;
    other.rotary = Rotary::kNone;
    other.rotary_cached = false;
    with_queries_of("queries are not turned", other);
    other = c_;
    for (const auto& [rule, at] : {std::pair(RotaryQ::kDiagonal, "i + len_k - len_q"),
                                   {RotaryQ::kFromCacheSeqlens, "cache_seqlens + i"},
                                   {RotaryQ::kAtCacheSeqlens, "cache_seqlens"}}) {
      other.rotary_q = rule;
      const auto same = [&](const SeqLen& s) {
        return s.q == 0 || (other.rotary_position(s, 0) == c_.rotary_position(s, 0) &&
                            other.rotary_position(s, s.q - 1) == c_.rotary_position(s, s.q - 1));
      };
      if (!std::ranges::all_of(c_.seqs, same))
        with_queries_of(fmt::format("query i is turned to position {}", at), other);
    }
  }

  void key_positions() {
    CaseParams unturned = c_;
    unturned.rotary = Rotary::kNone;
    unturned.rotary_cached = false;
    Case other = case_;
    other.params = unturned;
    const auto stored = std::make_shared<OtherCase>(other);
    const auto tables = std::make_shared<AppendedRows>(case_);
    const int block = c_.kv == KvSource::kPaged ? c_.block_size : 16;
    const auto turned = [&](const char* text, auto position) {
      misread("", text,
              {.change =
                   [=, type = c_.dtype](Tensor tensor, int seq, int pos, int head, Row row) {
                     if (tensor != Tensor::kK) return;
                     stored->inputs.load_k(seq, head, pos, pos + 1, row.data());
                     if (position(pos) < 0) return;
                     tables->rotate(position(pos), row, {});
                     for (double& x : row) x = static_cast<double>(round_to(type, static_cast<float>(x)));
                   }})
          .in_pairs = false;
    };
    turned("keys of the cache are not turned", [](int) { return -1; });
    turned("keys of the cache turn to the position of the first of their page",
           [block](int pos) { return pos - pos % block; });
    turned("positions of keys of the cache begin at 0 in each page",
           [block](int pos) { return pos % block; });
    turned("keys of the cache turn to the position before", [](int pos) { return std::max(0, pos - 1); });
  }

  const Case& case_;
  const CaseParams& c_;
};

}  // namespace

std::vector<Mistake> input_mistakes(const Case& c, const reference::Problem& right,
                                    const reference::Inputs& inputs) {
  return InputMistakes(c, right, inputs).all();
}

}  // namespace attnbench
