// Mistakes in how the values of a case are stored: descales, scales of blocks, small numbers.
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
#include "harness/judge/mistake_table.h"
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

/// The token of the same sequence that is the first of the page of token `pos`.
int first_of_page(const CaseParams& p, int seq, int pos) {
  const int before = leftpad_of(p, static_cast<std::size_t>(seq));
  return std::max(0, pos - (before + pos) % p.block_size);
}

class StoredMistakes : MistakeTable {
 public:
  using MistakeTable::MistakeTable;

  std::vector<Mistake> all(const Case& c) && {
    stored_values(c);
    return std::move(out_);
  }

 private:
  void stored_values(const Case& c) {
    const CaseParams& p = c.params;
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
      misread("", text, {.change = [=](Tensor of, int seq, int pos, int head, std::span<double> row) {
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
      const auto with_descale = [&](const std::string& which, auto of) {
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
      if (p.kv == KvSource::kPaged && tensor != Tensor::kQ) {
        with_descale("the first token of its page",
                     [=, &p](Tensor t, int seq, int pos, int head, std::size_t i) {
                       return of_element(t, seq, first_of_page(p, seq, pos), head, i);
                     });
      }
      const bool v = tensor == Tensor::kV;
      const bool q = tensor == Tensor::kQ;
      const int rows = q ? p.q_descale_rows : v ? 1 : p.k_descale_rows;
      if (q ? rows > 1 : p.row_descales(v)) {
        with_descale(rows > 1 ? "the block of rows before" : "the token before",
                     [=](Tensor t, int seq, int pos, int head, std::size_t i) {
                       return of_element(t, seq, std::max(0, pos - rows), head, i);
                     });
      }
      if (rows > 1) {
        with_descale(fmt::format("blocks of {} rows", 2 * rows),
                     [=](Tensor t, int seq, int pos, int head, std::size_t i) {
                       return of_element(t, seq, pos / 2, head, i);
                     });
      }
      if (tensor != Tensor::kQ && scaled(p.type_of_k()) && scaled(p.type_of_v())) {
        with_descale(v ? "K" : "V", [=](Tensor, int seq, int pos, int head, std::size_t i) {
          return of_element(v ? Tensor::kK : Tensor::kV, seq, pos, head, i);
        });
      }
      if (tensor == Tensor::kQ && scaled(p.type_of_k())) {
        with_descale("K", [=, group = p.num_heads_q / p.num_heads_kv](Tensor, int seq, int pos, int head,
                                                                      std::size_t i) {
          return of_element(Tensor::kK, seq, pos, head / group, i);
        });
      }
    }
    if (scaled(p.type_of_k()) && scaled(p.type_of_v())) {
      descales("descales of K and V are not applied", {Tensor::kK, Tensor::kV}, none);
      descales("descales of K and V are exchanged", {Tensor::kK, Tensor::kV},
               [=](Tensor t, int seq, int pos, int head, std::size_t i) {
                 return of_element(t == Tensor::kK ? Tensor::kV : Tensor::kK, seq, pos, head, i);
               });
    }
    const auto small = [&](Tensor tensor, DType type, const char* name) {
      const int subnormal = type == DType::kE4m3                           ? -6
                            : type == DType::kE5m2 || type == DType::kFp16 ? -14
                                                                           : 0;
      for (const int exponent : {-14, -10, -9, -8, -7, -6, -5, -4}) {
        const bool normal = exponent != subnormal;
        if (p.kv_dtype == KvDType::kDsMla || (normal && exponent == -14)) continue;
        misread(
            "",
            fmt::format("{}{} ({} below 2^{}) are taken as 0",
                        normal ? "small numbers of " : "subnormals of ", name, dtype_name(type), exponent),
            {.change = [=](Tensor of, int seq, int pos, int head, std::span<double> row) {
              for (std::size_t i = 0; of == tensor && i < row.size(); ++i) {
                const double scale = is_fp8(type) ? of_element(of, seq, pos, head, i) : 1;
                if (std::abs(row[i]) < std::ldexp(std::abs(scale), exponent)) row[i] = 0;
              }
            }});
        out_.back().in_pairs = false;
      }
    };
    small(Tensor::kQ, p.type_of_q(), "Q");
    small(Tensor::kK, p.type_of_k(), "K");
    small(Tensor::kV, p.type_of_v(), "V");
    if (p.scale_block() > 0) block_scales(c);
  }

  void block_scales(const Case& c) {
    const auto changed = [&](const std::string& text, auto change, bool k = true, bool v = true) {
      misread(
          "", text,
          {.change = [change, k, v, &c](Tensor tensor, int seq, int pos, int head, std::span<double> row) {
            if (!(tensor == Tensor::kK ? k : tensor == Tensor::kV && v)) return;
            const Tensor stored = c.params.v_is_k_view ? Tensor::kK : tensor;
            change(BlockScales{c, stored, stored_row(c.params, seq, pos), head}, static_cast<int>(row.size()),
                   row.data());
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
    const auto of = [&](auto other) {  // the scales of another row
      return by([other](const BlockScales& s, int block, int) {
        BlockScales read = s;
        int read_block = block;
        other(read, read_block);
        return read.of_block(read_block) / s.of_block(block);
      });
    };
    const auto head_0 = of([](BlockScales& s, int&) { s.head = 0; });
    const auto row_0 =
        of([&c](BlockScales& s, int&) { s.row.pos = first_of_page(c.params, s.row.seq, s.row.pos); });
    const bool paged = c.params.kv == KvSource::kPaged;
    for (const auto& [name, k, v] :
         {std::tuple("K", true, false), {"V", false, true}, {"K and V", true, true}}) {
      changed(fmt::format("blocks of channels of {} have the scales of head 0", name), head_0, k, v);
      if (paged)
        changed(
            fmt::format("blocks of channels of {} have the scales of the first token of their page", name),
            row_0, k, v);
    }
    changed("blocks of channels of V have the scales of K",
            of([](BlockScales& s, int&) { s.tensor = Tensor::kK; }), false, true);
    changed("two blocks of channels share a scale, that of every other block",
            of([](BlockScales&, int& block) { block /= 2; }));
    changed("all blocks of channels of a row have the scale of the first",
            of([](BlockScales&, int& block) { block = 0; }));
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
};

}  // namespace

std::vector<Mistake> stored_mistakes(const Case& c, const reference::Problem& right,
                                     const reference::Inputs& inputs) {
  return StoredMistakes(right, inputs).all(c);
}

}  // namespace attnbench
