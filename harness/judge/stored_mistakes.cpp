// Mistakes in how the values of a case are stored: descales, scales of blocks, rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/cases/cost.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/mistakes.h"
#include "harness/tensors/descales.h"

namespace attnbench {
namespace {

/// The scales of the blocks of a stored row of K or V.
struct BlockScales {
  const Case& item;
  Tensor tensor;
  GivenBlocks::Row row;
  int head;

  /// Channels that have scales.
  int channels(int dim) const { return item.params.k_tail() > 0 ? item.params.dim_v() : dim; }
  double of_block(int block) const {
    return static_cast<double>(block_scale_at(item, tensor, row.seq, row.pos, head, block));
  }
};

class StoredMistakes {
 public:
  StoredMistakes(const reference::Problem& right, const reference::Inputs& inputs)
      : p_(right), inputs_(inputs) {}

  std::vector<Mistake> all(const Case& c) && {
    stored_values(c);
    return std::move(out_);
  }

 private:
  void misread(std::string text, Misread::How how) {
    out_.push_back(misread_mistake(p_, inputs_, "", std::move(text), std::move(how)));
  }

  void stored_values(const Case& c) {
    const CaseParams& p = c.params;
    packed_rows(p);
    if (p.rotary_cached) keys_not_turned(c);
    const auto scaled = [&](DType type) {
      return (is_fp8(type) && p.kv_dtype != KvDType::kDsMla) || type == DType::kInt8 ||
             type == DType::kE2m1x2;
    };
    const auto of_element = [&c](Tensor tensor, int seq, int pos, int head, std::size_t i) {
      const int owner = tensor != Tensor::kQ && pos < c.params.shared_tokens() ? 0 : seq;
      return static_cast<double>(descale_of(c, tensor, owner, pos, head, static_cast<int>(i)));
    };
    // Rows have another factor, `wrong(tensor, seq, pos, head, channel)`, in the place of their descales.
    const auto descales = [&](const std::string& text, const std::vector<Tensor>& tensors, auto wrong) {
      misread(text, {.change = [=](Tensor of, int seq, int pos, int head, std::span<double> row) {
                if (std::ranges::find(tensors, of) == tensors.end()) return;
                for (std::size_t i = 0; i < row.size(); ++i)
                  row[i] *= wrong(of, seq, pos, head, i) / of_element(of, seq, pos, head, i);
              }});
      out_.back().in_pairs = text.ends_with("not applied");
    };
    const auto none = [](Tensor, int, int, int, std::size_t) { return 1.0; };
    for (const auto& [of_tensor, type, its_name] : {std::tuple(Tensor::kQ, p.type_of_q(), "Q"),
                                                    {Tensor::kK, p.type_of_k(), "K"},
                                                    {Tensor::kV, p.type_of_v(), "V"}}) {
      if (!scaled(type)) continue;
      const Tensor tensor = of_tensor;  // clang 14 captures no structured bindings
      const char* name = its_name;
      const auto with_descale = [&](const char* which, auto of) {
        descales(fmt::format("{} has the descale of {}", name, which), {tensor}, of);
      };
      descales(fmt::format("descales of {} are not applied", name), {tensor}, none);
      with_descale("sequence 0", [=](Tensor t, int, int pos, int head, std::size_t i) {
        return of_element(t, 0, pos, head, i);
      });
      with_descale("head 0", [=](Tensor t, int seq, int pos, int, std::size_t i) {
        return of_element(t, seq, pos, 0, i);
      });
      with_descale("channel 0", [=](Tensor t, int seq, int pos, int head, std::size_t) {
        return of_element(t, seq, pos, head, 0);
      });
    }
    if (scaled(p.type_of_k()) && scaled(p.type_of_v())) {
      descales("descales of K and V are not applied", {Tensor::kK, Tensor::kV}, none);
      descales("descales of K and V are exchanged", {Tensor::kK, Tensor::kV},
               [=](Tensor t, int seq, int pos, int head, std::size_t i) {
                 return of_element(t == Tensor::kK ? Tensor::kV : Tensor::kK, seq, pos, head, i);
               });
    }
    const auto subnormals = [&](Tensor tensor, DType type, const char* name) {
      const double least = type == DType::kE4m3                           ? 0x1p-6
                           : type == DType::kE5m2 || type == DType::kFp16 ? 0x1p-14
                                                                          : 0;
      if (least == 0 || p.kv_dtype == KvDType::kDsMla) return;
      misread(fmt::format("subnormals of {} ({} below 2^{}) are taken as 0", name, dtype_name(type),
                          std::ilogb(least)),
              {.change = [=](Tensor of, int seq, int pos, int head, std::span<double> row) {
                for (std::size_t i = 0; of == tensor && i < row.size(); ++i) {
                  const double scale = is_fp8(type) ? of_element(of, seq, pos, head, i) : 1;
                  if (std::abs(row[i]) < least * std::abs(scale)) row[i] = 0;
                }
              }});
      out_.back().in_pairs = false;
    };
    subnormals(Tensor::kQ, p.type_of_q(), "Q");
    subnormals(Tensor::kK, p.type_of_k(), "K");
    subnormals(Tensor::kV, p.type_of_v(), "V");
    if (p.scale_block() > 0) block_scales(c);
  }

  /// The rows of K and V of each sequence, found by the offsets of q.
  void packed_rows(const CaseParams& p) {
    const auto longer = [](const SeqLen& s) { return s.k > s.q; };
    if (p.kv != KvSource::kPacked || p.gap_tokens > 0 || p.gap_queries > 0 || p.seqs.size() < 2) return;
    if (!std::any_of(p.seqs.begin(), p.seqs.end() - 1, longer)) return;
    if (std::ranges::any_of(p.seqs, [](const SeqLen& s) { return s.q > s.k; })) return;
    misread("K and V of sequence b are read from row cu_seqlens_q[b] on, not cu_seqlens_k[b]",
            {.place = [&p](Tensor, int seq, int pos) {
              int64_t row = pos;
              for (int b = 0; b < seq; ++b) row += p.seqs[static_cast<std::size_t>(b)].q;
              int from = 0;
              for (; row >= p.seqs[static_cast<std::size_t>(from)].k; ++from)
                row -= p.seqs[static_cast<std::size_t>(from)].k;
              return std::pair(from, static_cast<int>(row));
            }});
  }

  void keys_not_turned(const Case& c) {
    struct Stored {
      Case item;
      std::vector<unsigned char> no_new_rows = {};
      CaseInputs inputs{item, no_new_rows};
      explicit Stored(Case of) : item(std::move(of)) {}
    };
    Case unturned = c;
    unturned.params.rotary = Rotary::kNone;
    unturned.params.rotary_cached = false;
    misread("keys of the cache are not turned",
            {.change = [stored = std::make_shared<Stored>(unturned)](Tensor tensor, int seq, int pos,
                                                                     int head, std::span<double> row) {
              if (tensor == Tensor::kK) stored->inputs.load_k(seq, head, pos, pos + 1, row.data());
            }});
  }

  void block_scales(const Case& c) {
    const auto changed = [&](const std::string& text, auto change, bool k = true, bool v = true) {
      misread(text, {.change = [change, k, v, &c](Tensor tensor, int seq, int pos, int head,
                                                  std::span<double> row) {
                if (!(tensor == Tensor::kK ? k : tensor == Tensor::kV && v)) return;
                const Tensor stored = c.params.v_is_k_view ? Tensor::kK : tensor;
                change(BlockScales{c, stored, stored_row(c.params, seq, pos), head},
                       static_cast<int>(row.size()), row.data());
              }});
    };
    const auto by = [n = c.params.scale_block()](auto factor) {
      return [n, factor](const BlockScales& s, int dim, double* row) {
        const int blocks = s.channels(dim) / n;
        for (int i = 0; i < blocks * n; ++i) row[i] *= factor(s, i / n, blocks);
      };
    };
    const auto none = by([](const BlockScales& s, int block, int) { return 1 / s.of_block(block); });
    const auto next = by([](const BlockScales& s, int block, int blocks) {
      return s.of_block((block + 1) % blocks) / s.of_block(block);
    });
    changed("scales of blocks of channels are not applied", none);
    changed("scales of blocks of channels are not applied to K", none, true, false);
    changed("scales of blocks of channels are not applied to V", none, false, true);
    changed("blocks of channels have the scales of their neighbours", next);
    if (c.params.kv_dtype == KvDType::kNvfp4) {
      changed("the two numbers of a byte of K and V are exchanged",
              [](const BlockScales&, int dim, double* row) {
                for (int i = 0; i < dim; i += 2) std::swap(row[i], row[i + 1]);
              });
    } else {
      changed("channels of K behind head_dim_v are left out", [](const BlockScales& s, int dim, double* row) {
        std::fill(row + s.channels(dim), row + dim, 0.0);
      });
    }
  }

  const reference::Problem& p_;  ///< the right problem
  const reference::Inputs& inputs_;
  std::vector<Mistake> out_;
};

}  // namespace

std::vector<Mistake> stored_mistakes(const Case& c, const reference::Problem& right,
                                     const reference::Inputs& inputs) {
  return StoredMistakes(right, inputs).all(c);
}

}  // namespace attnbench
