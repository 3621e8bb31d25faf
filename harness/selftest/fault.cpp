#include "harness/selftest/fault.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace attnbench {

std::vector<FaultClass> all_faults() {
  return {mask_faults(),       length_faults(),      empty_row_faults(),
          paging_faults(),     nan_faults(),         head_faults(),
          split_faults(),      num_splits_faults(),  score_faults(),
          quantised_faults(),  input_faults(),       width_faults(),
          training_faults(),   in_call_faults(),     position_faults(),
          append_faults(),     rotary_faults(),      quantised_append_faults(),
          merge_faults(),      memory_faults(),      state_faults(),
          layout_faults(),     stride_faults(),      ignored_faults(),
          backward_faults(),   lse_faults(),         refusal_faults(),
          scale_faults(),      custom_mask_faults(), key_list_faults(),
          move_faults(),       query_faults(),       cached_rotary_faults(),
          block_scale_faults()};
}

Case fault_case(const std::string& yaml, uint64_t seed) {
  std::vector<Case> cases = expand(parse_inline_case(yaml, {}, seed)).cases;
  if (cases.size() != 1) throw std::logic_error("a fault's case is no single case: " + yaml);
  return cases[0];
}

std::string in_type_of(const Kernel& kernel, const std::string& yaml) {
  constexpr std::string_view kWritten = " dtype: bf16";
  const std::size_t at = yaml.find(kWritten);
  if ((kernel.features & kBf16) || at == std::string::npos) return yaml;
  if (yaml.find("fp8_ds_mla") != std::string::npos) return yaml;  // these rows hold bf16
  const char* type = (kernel.features & kFp16) ? " dtype: fp16" : " dtype: fp32";
  return std::string(yaml).replace(at, kWritten.size(), type);
}

std::vector<Fault> joined(std::initializer_list<std::vector<Fault>> groups) {
  std::vector<Fault> all;
  for (const std::vector<Fault>& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

Tamper::Fault with_params(std::function<void(Tamper&, AttentionParams&)> change) {
  return changed<&OpParams::attention>(std::move(change));
}

Tamper::Fault with_op(std::function<void(Tamper&, OpParams&)> change) {
  return [change = std::move(change)](Tamper& t, const OpParams& op) {
    OpParams wrong = op;
    change(t, wrong);
    return t.launch(wrong);
  };
}

Tamper::Fault with_append(std::function<void(Tamper&, KvAppendParams&)> change) {
  return changed<&OpParams::kv_append>(std::move(change));
}

int64_t pages_of(const HostView& v, int b) { return (v.k_len(b) + v.p().block_size - 1) / v.p().block_size; }

Tamper::Fault with_output(std::function<void(const HostView&, OutView&)> change) {
  return afterwards<&OpParams::attention>([change = std::move(change)](Tamper& t, const AttentionParams& p) {
    const HostView view(t, p);
    t.edit(p, [&](OutView& out) { change(view, out); });
  });
}

Tamper::Fault unwritten(std::function<bool(const HostView&, const HostRow&)> of) {
  return [of = std::move(of)](Tamper& t, const OpParams& op) {
    const AttentionParams& p = op.attention;
    const auto before = t.read<unsigned char>(
        p.out, p.total_q * p.out_stride_token * static_cast<int64_t>(dtype_size(p.dtype_out)));
    return with_output([&](const HostView& view, OutView& out) {
      for (const HostRow& r : view.rows()) {
        if (!of(view, r)) continue;
        const std::size_t begin = out.bytes(r.token, r.head, 0),
                          end = out.bytes(r.token, r.head, p.head_dim_v);
        std::copy(before.begin() + static_cast<std::ptrdiff_t>(begin),
                  before.begin() + static_cast<std::ptrdiff_t>(end),
                  out.out.begin() + static_cast<std::ptrdiff_t>(begin));
      }
    })(t, op);
  };
}

void set_row(OutView& out, const HostRow& row, const RowAnswer& answer) {
  for (std::size_t c = 0; c < answer.o.size(); ++c)
    out.set_o(row.token, row.head, static_cast<int>(c), static_cast<float>(answer.o[c]));
  out.lse_of(row.token, row.head) = static_cast<float>(answer.lse);
}

void set_rows(OutView& out, const HostView& view, const std::vector<RowAnswer>& all) {
  const std::vector<HostRow> rows = view.rows();
  for (std::size_t n = 0; n < rows.size(); ++n) set_row(out, rows[n], all[n]);
}

void add_term(RowAnswer& row, double logit) {
  const double before = std::exp(row.lse), after = before + std::exp(logit);
  for (double& o : row.o) o *= after > 0 ? before / after : 0;
  row.lse = std::log(after);
}

RowAnswer merged(const std::vector<RowAnswer>& parts, const std::vector<double>& logs) {
  const double top = *std::ranges::max_element(logs);
  RowAnswer m{std::vector<double>(parts[0].o.size(), 0.0), top};
  if (top == -INFINITY) return m;
  double sum = 0;
  for (const double l : logs) sum += std::exp(l - top);
  m.lse += std::log(sum);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (logs[i] == -INFINITY) continue;  // its O may be NaN
    for (std::size_t c = 0; c < m.o.size(); ++c) m.o[c] += std::exp(logs[i] - top) / sum * parts[i].o[c];
  }
  return m;
}

Tamper::Fault with_answers(std::function<void(const HostView&, reference::Problem&)> problem,
                           std::function<void(const HostView&, const HostRow&, RowAnswer&)> row) {
  return with_output(
      [problem = std::move(problem), row = std::move(row)](const HostView& view, OutView& out) {
        reference::Problem x = view.problem();
        problem(view, x);
        std::vector<RowAnswer> all = answers(x, view);
        const std::vector<HostRow> rows = view.rows();
        for (std::size_t n = 0; row && n < rows.size(); ++n) row(view, rows[n], all[n]);
        set_rows(out, view, all);
      });
}

Fault known(const std::string& name, std::string what, std::vector<std::string> cases,
            std::vector<std::string> ignores) {
  const auto launch = with_output([name](const HostView& view, OutView& out) {
    const reference::Problem right = view.problem();
    for (const Mistake& m : mistakes_of(right, view.layout(), view)) {
      if (m.fault == name) set_rows(out, view, answers(m.problem, *m.inputs));
    }
  });
  return {name, std::move(what), std::move(cases), launch, std::move(ignores)};
}

std::function<void(const HostView&, reference::Problem&)> keys_moved(
    std::function<void(const HostView&, HostRow&)> move) {
  return [move = std::move(move)](const HostView& view, reference::Problem& x) {
    std::map<std::tuple<int, int, int>, HostRow> rows;
    for (HostRow r : view.rows()) {
      move(view, r);
      rows[{r.seq, r.i, r.head}] = r;
    }
    x.causal = false;
    x.window_left = x.window_right = -1;
    x.attention_chunk = 0;
    x.sees = [rows = std::move(rows), right = x.sees](int seq, int pos, int head, int64_t key) {
      const HostRow& r = rows.at({seq, pos, head});
      return key >= r.lo && key < r.hi && (!right || right(seq, pos, head, key));
    };
  };
}

void change_lengths(Tamper& t, AttentionParams& p, const std::function<int32_t(int b, int32_t k_len)>& to) {
  if (p.batch == 0) return;
  std::vector<int32_t> used;
  if (p.seqused_k != nullptr) {
    used = t.read<int32_t>(p.seqused_k, p.batch);
  } else {
    const auto cu = t.read<int32_t>(p.cu_seqlens_k, p.batch + 1);
    for (std::size_t b = 0; b + 1 < cu.size(); ++b) used.push_back(cu[b + 1] - cu[b]);
    p.features |= kPartialKv;
  }
  for (std::size_t b = 0; b < used.size(); ++b) used[b] = to(static_cast<int>(b), used[b]);
  p.seqused_k = t.put(used);
}

void change_table(Tamper& t, AttentionParams& p,
                  const std::function<void(const HostView&, std::vector<int32_t>&)>& to) {
  const HostView view(t, p);
  std::vector<int32_t> table = view.table;
  if (table.empty()) return;  // an invariant's relaunch without pages
  to(view, table);
  p.block_table = t.put(table);
}

}  // namespace attnbench
