#include "harness/ops/kv_append/judge_query.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "harness/judge/interval.h"
#include "harness/ops/kv_append/tensors_scales.h"

namespace attnbench {
namespace {

std::string element_text(DType type, const std::vector<unsigned char>& memory, int64_t i) {
  return fmt::format("{:.9g}", static_cast<double>(load_float(type, memory.data(), i)));
}

}  // namespace

std::optional<std::string> check_query_out(const Workload& w, const AppendedRows& rows,
                                           const HostOutputs& outputs, WorstElement& worst,
                                           std::vector<unsigned char>& expected) {
  const CaseParams& p = w.item().params;
  const KvAppendParams a = Workload::shape_params(w.item(), w.padded()).kv_append;
  const DType type = a.dtype_query_out;
  const std::size_t size = dtype_size(type);
  const bool e4m3 = p.query_out == QueryOut::kE4m3;
  const bool copied = !e4m3 && p.rotary == Rotary::kNone;
  const double scale = e4m3 ? static_cast<double>(query_scale_of(w.item())) : 1.0;
  expected.assign(outputs.out.size(), 0xff);
  std::optional<std::string> wrong;
  const auto n = static_cast<std::size_t>(p.head_dim);
  std::vector<double> x(n), slack(n);
  const auto text = [&](std::size_t t, int32_t h, std::size_t c, int64_t at, const std::string& wanted) {
    const RowOwner o = w.plan().token_owners[t];
    worst = {o.seq, o.pos, h, static_cast<int>(c), load_float(type, outputs.out.data(), at), x[c] / scale, 0};
    return fmt::format("query_out of token {} head {} channel {}: got {}, expected {} (seq {} pos {})", t, h,
                       c, element_text(type, outputs.out, at), wanted, o.seq, o.pos);
  };
  for (std::size_t t = 0; t < w.plan().slot_mapping.size(); ++t) {
    const bool padding = w.plan().slot_mapping[t] < 0;
    for (int32_t h = 0; h < p.num_heads_q; ++h) {
      if (!padding) {
        const int32_t position = p.rotary == Rotary::kNone ? 0 : w.plan().positions[t];
        rows.query(w.plan().token_owners[t], position, h, x, slack);
      }
      const int64_t row = static_cast<int64_t>(t) * a.query_out_stride_token + h * a.query_out_stride_head;
      for (std::size_t c = 0; c < n; ++c) {
        const int64_t at = row + static_cast<int64_t>(c);
        const auto* got = &outputs.out[static_cast<std::size_t>(at) * size];
        if (padding) {
          if (wrong || std::all_of(got, got + size, [](unsigned char byte) { return byte == 0xff; }))
            continue;
          wrong = fmt::format(
              "query_out of token {} head {} channel {}: got {}, and nothing may be written: "
              "the token is padding",
              t, h, c, element_text(type, outputs.out, at));
          continue;
        }
        auto* wanted = &expected[static_cast<std::size_t>(at) * size];
        const Interval real{x[c] - slack[c], x[c] + slack[c]};
        const Interval allowed = rounded_to(type, e4m3 ? quotient(real, scale) : real);
        bool right = true;
        if (copied) {
          store_float(type, expected.data(), at, static_cast<float>(x[c]));
          right = std::memcmp(wanted, got, size) == 0;
        } else {
          right = contains(allowed, static_cast<double>(load_float(type, outputs.out.data(), at)));
          store_float(type, expected.data(), at, static_cast<float>(x[c] / scale));
          if (right) std::memcpy(wanted, got, size);
        }
        if (!right && !wrong) wrong = text(t, h, c, at, fmt::format("{:.9g}", x[c] / scale));
      }
    }
  }
  if (wrong || outputs.out == expected) return wrong;
  return "query_out: bytes between rows differ";
}

namespace {

/// What a kernel with one mistake returns for head h of token t.
struct QueryMistake {
  const char* text;
  RowTurn turn = RowTurn::kRight;
  bool at_index = false;  ///< turned to its index in the launch
  int heads = 0;          ///< head h has what belongs to head h + heads
  bool reversed = false;  ///< head h has what belongs to the h-th from the last
  RowScale scale = RowScale::kRight;
};
constexpr QueryMistake kQueryMistakes[] = {
    {.text = "queries are not turned", .turn = RowTurn::kNone},
    {.text = "queries turn to the index of their token in the launch", .at_index = true},
    {.text = "queries turn the other way: the sine has the wrong sign", .turn = RowTurn::kInverse},
    {.text = "queries turn in other pairs: halves for neighbours, or neighbours for halves",
     .turn = RowTurn::kOtherPairs},
    {.text = "query head h is that of head h + 1", .heads = 1},
    {.text = "query head h is that of head h - 1", .heads = -1},
    {.text = "query head h is that of the h-th from the last", .reversed = true},
    {.text = "the scale of queries is not applied", .scale = RowScale::kNone},
    {.text = "queries are multiplied by their scale, not divided", .scale = RowScale::kInverse},
};

class QueryFit {
 public:
  QueryFit(const Workload& w, const AppendedRows& rows, const HostOutputs& outputs)
      : w_(w), p_(w.item().params), rows_(rows), outputs_(outputs) {}

  bool gives(const QueryMistake& m, int64_t token, int32_t head) const {
    const bool e4m3 = p_.query_out == QueryOut::kE4m3;
    if (!e4m3 && m.scale != RowScale::kRight) return false;
    if (p_.rotary == Rotary::kNone && (m.turn != RowTurn::kRight || m.at_index)) return false;
    const auto n = static_cast<std::size_t>(p_.head_dim);
    const auto t = static_cast<std::size_t>(token);
    const int32_t heads = p_.num_heads_q,
                  from = m.reversed ? heads - 1 - head : (head + m.heads + heads) % heads;
    const int32_t position = p_.rotary == Rotary::kNone ? 0
                             : m.at_index ? std::min(static_cast<int32_t>(token), p_.rotary_positions() - 1)
                                          : w_.plan().positions[t];
    std::vector<double> x(n), slack(n);
    rows_.query(w_.plan().token_owners[t], position, from, x, slack, m.turn);
    double scale = e4m3 ? static_cast<double>(query_scale_of(w_.item())) : 1;
    if (m.scale == RowScale::kNone) scale = 1;
    if (m.scale == RowScale::kInverse) scale = 1 / scale;
    const KvAppendParams a = Workload::shape_params(w_.item(), w_.padded()).kv_append;
    const int64_t at = token * a.query_out_stride_token + head * a.query_out_stride_head;
    for (std::size_t c = 0; c < n; ++c) {
      const Interval real{x[c] - slack[c], x[c] + slack[c]};
      const auto got = static_cast<double>(
          load_float(a.dtype_query_out, outputs_.out.data(), at + static_cast<int64_t>(c)));
      if (!contains(rounded_to(a.dtype_query_out, e4m3 ? quotient(real, scale) : real), got)) return false;
    }
    return true;
  }

 private:
  const Workload& w_;
  const CaseParams& p_;
  const AppendedRows& rows_;
  const HostOutputs& outputs_;
};

}  // namespace

std::vector<std::string> query_clues(const Workload& w, const AppendedRows& rows,
                                     const HostOutputs& outputs) {
  constexpr std::size_t kMostTried = 64, kFewest = 4;
  const QueryFit fit(w, rows, outputs);
  std::vector<std::pair<int64_t, int32_t>> wrong;
  for (int64_t t = 0; t < std::ssize(w.plan().slot_mapping); ++t) {
    const bool padding = w.plan().slot_mapping[static_cast<std::size_t>(t)] < 0;
    for (int32_t h = 0; !padding && h < w.item().params.num_heads_q && wrong.size() < kMostTried; ++h) {
      if (!fit.gives({}, t, h)) wrong.emplace_back(t, h);
    }
  }
  if (wrong.empty()) return {"rows of query_out of padding tokens, whose slot is -1, are written"};
  std::vector<std::string> clues;
  for (const QueryMistake& m : kQueryMistakes) {
    if (wrong.size() >= kFewest &&
        std::ranges::all_of(wrong, [&](const auto& row) { return fit.gives(m, row.first, row.second); }))
      clues.push_back(
          fmt::format("looks like: {} (all {} wrong rows tried match this mistake)", m.text, wrong.size()));
  }
  return clues;
}

}  // namespace attnbench
