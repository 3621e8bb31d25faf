#include "harness/session/weight_launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "harness/judge/stored_out.h"
#include "harness/judge/weights.h"
#include "harness/tensors/descales.h"

namespace attnbench {
namespace {

constexpr int kMostLaunches = 8;  ///< for the keys of a sequence, with as many keys each as V has channels
constexpr std::size_t kMostRows = 192;   ///< that are looked at
constexpr int64_t kMostBytes = 1 << 26;  ///< of V

/// Whether O of such a case can show weights.
bool can_be_asked(const CaseParams& p) {
  const bool v_alone = !p.append && !p.v_is_k_view && !p.one_row && !p.qv && p.scale_block() == 0;
  const bool plain = !p.captured && !p.blocks && p.dropout == 0 && !p.e4m3_out && p.rotary == Rotary::kNone;
  return p.does().forward() && p.does().attends && p.path == Path::kOneCall && v_alone && plain &&
         p.type_of_v() != DType::kInt8 && p.dim_v() >= 16;
}

/// Replaces V of all keys on the device.
void set_v(Workload& w,
           const std::function<float(const RowOwner& owner, int32_t kv_head, int32_t channel)>& value) {
  const FillJob job = w.cache_job(true);
  std::vector<unsigned char> host = w.download("v");
  for (int64_t r = 0; r < job.num_rows; ++r) {
    const RowOwner& owner = w.plan().kv_owners[static_cast<std::size_t>(r)];
    for (int32_t h = 0; owner.seq >= 0 && h < job.num_heads; ++h) {
      for (int32_t c = 0; c < job.head_dim; ++c)
        store_float(job.dtype, host.data(), fill_offset(job, r, h) + c, value(owner, h, c));
    }
  }
  w.device().upload(w.data("v"), host.data(), std::ssize(host));
}

int longest_of(const CaseParams& p) {
  int longest = 0;
  for (const SeqLen& s : p.seqs) longest = std::max(longest, s.k);
  return longest;
}

int launches_for(const CaseParams& p) { return 2 * ((longest_of(p) + p.dim_v() - 1) / p.dim_v()) + 2; }

class WeightLaunches {
 public:
  WeightLaunches(const WorkItem& work, Device& device, KernelTable table, const Launcher& like,
                 const Case& item, const std::function<double()>& seconds_left)
      : kernel_(*work.kernel),
        device_(device),
        c_(item),
        p_(c_.params),
        seconds_left_(seconds_left),
        workload_(device, c_, layout(kernel_)),
        launcher_(kernel_, table, device, workload_, &like) {
    const double u = std::max(unit_roundoff(p_.type_of_out()), unit_roundoff(launcher_.numerics().p_type));
    tolerance_ = std::min(0.5, 0.02 + 4 * u);
  }

  /// Whether the case is wrong at all.
  bool wrong() {
    return launch() && !verify(workload_, outputs_, launcher_.numerics(), {CheckMode::kSampled, 1}).pass;
  }
  /// Whether there is time for all launches, after the first.
  bool in_time() const { return launch_s_ * launches_for(p_) < seconds_left_(); }

  std::vector<std::string> all() {
    std::string clue;
    const auto said = [&](const char* how) -> std::vector<std::string> {
      if (clue.empty()) return {};
      return {fmt::format("{} (checked by {} launches whose V {})", clue, launches_, how)};
    };
    choose_rows();
    clue = channels();  // other launches take them to be right
    if (!clue.empty()) return said("hold the number of their channel");
    const auto rows = weighed(false);
    if (!rows) return {};
    if (are_right(*rows, tolerance_)) {
      clue = whose_v();
      return said("tell heads and sequences apart, after others that show the weights of keys to be right");
    }
    clue = value_places(p_, *rows, tolerance_);
    if (!clue.empty()) return said("tell keys apart");
    workload_.scale_input("q", p_.type_of_q(), 0);
    const auto at_zero = weighed(true);
    if (!at_zero) return {};
    const KeyCounts counts = count_keys(p_, *at_zero, tolerance_);
    const std::string of_weights = weights_clue(p_, *rows, counts, tolerance_);
    if (counts.clue.empty() || (counts.only_twice && !of_weights.empty())) {
      clue = weights_clue(p_, *rows, right_counts(*rows), tolerance_);
      return said("tell keys apart");
    }
    clue = counts.clue + (of_weights.empty() ? "; this explains all weights of these rows" : "");
    return said("tell keys apart, half of them with q = 0");
  }

 private:
  static LayoutVariant layout(const Kernel& kernel) {
    LayoutVariant of = layout_for(kernel);
    of.finite_padding = true;
    return of;
  }

  bool launch() {
    if (seconds_left_() < launch_s_) return false;
    const double before = seconds_left_();
    ++launches_;
    workload_.reset_outputs();
    launcher_.launch();
    device_.synchronize();
    outputs_ = launcher_.outputs(workload_);
    launch_s_ = before - seconds_left_();
    return true;
  }

  /// Rows of all sequences and heads, the first and last queries among them.
  void choose_rows() {
    std::vector<reference::RowId> all;
    for (int b = 0; b < static_cast<int>(p_.seqs.size()); ++b) {
      const SeqLen& s = p_.seqs[static_cast<std::size_t>(b)];
      if (s.k < 2) continue;
      for (int i = 0; i < s.q; ++i) {
        for (int h = 0; h < p_.num_heads_q; ++h) all.push_back({b, i, h});
      }
    }
    const std::size_t step = 1 + all.size() / kMostRows;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const SeqLen& s = p_.seqs[static_cast<std::size_t>(all[i].seq)];
      // A step of whole tokens keeps all heads of each.
      if (step == 1 || (i / static_cast<std::size_t>(p_.num_heads_q)) % step == 0 || all[i].pos == s.q - 1)
        ids_.push_back(all[i]);
    }
    if (ids_.size() > 2 * kMostRows) ids_.resize(2 * kMostRows);
  }

  int64_t token_of(const reference::RowId& id) const {
    return packed_q_begins(p_)[static_cast<std::size_t>(id.seq)] + id.pos;
  }
  double out_of(const reference::RowId& id, int channel) const {
    return static_cast<double>(load_float(p_.type_of_out(), outputs_.out.data(),
                                          (token_of(id) * p_.num_heads_q + id.head) * p_.dim_v() + channel));
  }
  double lse_of(const reference::RowId& id) const {
    if (outputs_.no_lse) return NAN;
    const auto total = static_cast<int64_t>(outputs_.lse.size()) / p_.num_heads_q;
    return static_cast<double>(outputs_.lse[static_cast<std::size_t>(id.head * total + token_of(id))]);
  }
  int kv_head_of(const reference::RowId& id) const { return id.head / (p_.num_heads_q / p_.num_heads_kv); }
  double descale(const reference::RowId& id, int key, int channel) const {
    return static_cast<double>(descale_of(c_, Tensor::kV, id.seq, key, kv_head_of(id), channel));
  }

  int longest() const { return longest_of(p_); }

  /// The weights of all keys. Nothing if there is no time.
  std::optional<std::vector<WeighedRow>> weighed(bool zero_q) {
    std::vector<WeighedRow> rows = rows_to_weigh(c_, ids_, zero_q, 0);
    const int dim = p_.dim_v();
    for (int begin = 0; begin < longest(); begin += dim) {
      set_v(workload_, [&](const RowOwner& owner, int32_t, int32_t c) {
        return owner.seq != kNoSequence && owner.pos == begin + c ? 1.0f : 0.0f;
      });
      if (!launch()) return std::nullopt;
      for (WeighedRow& row : rows) {
        if (begin == 0) row.got_lse = lse_of(row.id);
        for (int key = begin; key < std::min(begin + dim, row.keys()); ++key)
          row.weight[static_cast<std::size_t>(key)] =
              out_of(row.id, key - begin) / descale(row.id, key, key - begin);
      }
    }
    for (const WeighedRow& row : rows) {
      if (!std::ranges::all_of(row.weight, [](double w) { return std::isfinite(w); })) return std::nullopt;
    }
    return rows;
  }

  /// Which heads and sequences V is read from, if others than it should.
  std::string whose_v() {
    const int heads = p_.num_heads_kv, seqs = static_cast<int>(p_.seqs.size());
    if (heads + seqs > p_.dim_v() || p_.shared_tokens() > 0 || p_.row_descales(true)) return "";
    set_v(workload_, [&](const RowOwner& owner, int32_t h, int32_t c) {
      return owner.seq != kNoSequence && (c == h || c == heads + owner.seq) ? 1.0f : 0.0f;
    });
    if (!launch()) return "";
    const double few = 2 * tolerance_;
    std::string of_heads, of_seqs;
    int wrong_heads = 0, wrong_seqs = 0, with = 0;
    for (const reference::RowId& id : ids_) {
      const auto shares = [&](int first, int count, int own, int& wrong, std::string& text,
                              const char* name) {
        double sum = 0, most = 0;
        int other = -1;
        for (int x = 0; x < count; ++x) {
          const double share = out_of(id, first + x) / descale(id, 0, first + x);
          sum += share;
          if (x == own || share <= most) continue;
          most = share;
          other = x;
        }
        if (!(most > few * sum)) return;
        if (wrong++ == 0)
          text = fmt::format("seq {} pos {} head {} has {:.3g} of its weight on {} {} (its own is {})",
                             id.seq, id.pos, id.head, most / sum, name, other, own);
      };
      ++with;
      shares(0, heads, kv_head_of(id), wrong_heads, of_heads, "KV head");
      shares(heads, seqs, id.seq, wrong_seqs, of_seqs, "sequence");
    }
    std::string text;
    if (wrong_heads > 0)
      text = fmt::format("{} of {} rows read V of other KV heads: {}", wrong_heads, with, of_heads);
    if (wrong_seqs > 0)
      text += fmt::format("{}{} of {} rows read V of other sequences: {}", text.empty() ? "" : "; ",
                          wrong_seqs, with, of_seqs);
    return text;
  }

  /// Which channels of V the channels of O are, if others than they should.
  std::string channels() {
    const int dim = p_.dim_v();
    if (dim > 256 || is_fp8(p_.type_of_v())) return "";  // bf16 holds whole numbers up to 256
    set_v(workload_, [](const RowOwner&, int32_t, int32_t c) { return static_cast<float>(c + 1); });
    if (!launch()) return "";
    std::map<int, int> from;
    for (const reference::RowId& id : ids_) {
      // The largest channel is dim times the sum of the weights, wherever it lies.
      double most = 0;
      for (int c = 0; c < dim; ++c) most = std::max(most, out_of(id, c));
      if (!(most > 0)) continue;
      for (int c = 0; c < dim; ++c) {
        const double is = out_of(id, c) / most * dim - 1;
        if (!std::isfinite(is)) return "";
        if (std::abs(is - c) <= 2 * tolerance_ * (c + 1) + 0.5) continue;
        const auto [known, added] = from.try_emplace(c, static_cast<int>(std::lround(is)));
        if (!added && std::abs(known->second - is) > 2 * tolerance_ * (is + 1) + 0.5) return "";
      }
    }
    if (from.empty()) return "";
    std::vector<int> wrong;
    for (const auto& [c, is] : from) wrong.push_back(c);
    const auto& [c, is] = *from.begin();
    return fmt::format("channels {} of O hold other channels of V: channel {} holds about channel {}",
                       ranges_text(wrong), c, is);
  }

  const Kernel& kernel_;
  Device& device_;
  Case c_;
  const CaseParams& p_;
  const std::function<double()>& seconds_left_;
  double launch_s_ = 0;  ///< what the last launch took
  Workload workload_;
  Launcher launcher_;
  HostOutputs outputs_;
  double tolerance_ = 0;
  int launches_ = 0;
  std::vector<reference::RowId> ids_;
};

/// The case with normal data, then its worst sequence alone and that with most queries, at most so long that a few
/// launches show all its keys.
std::vector<Case> cases_to_ask(const Case& item, int worst_seq) {
  Case c = item;
  c.params.data = Profile::kNormal;
  std::vector<Case> cases;
  const int most = kMostLaunches * c.params.dim_v();
  if (longest_of(c.params) <= most) cases.push_back(c);
  const std::vector<SeqLen> seqs = c.params.seqs;
  if (static_cast<std::size_t>(worst_seq) >= seqs.size() || c.params.shared_tokens() > 0) return cases;
  for (const SeqLen& s :
       {seqs[static_cast<std::size_t>(worst_seq)], *std::ranges::max_element(seqs, {}, &SeqLen::q)}) {
    for (const int keys : {most, 2 * c.params.dim_v()}) {
      const int k = std::min(s.k, keys);
      c.params.seqs = {{std::min(s.q, k), k}};
      if (cases.empty() || cases.back().params.seqs != c.params.seqs) cases.push_back(c);
    }
  }
  return cases;
}

}  // namespace

std::vector<std::string> clues_of_weights(const WorkItem& work, Device& device, KernelTable table,
                                          const Launcher& launcher, int worst_seq, double launch_s,
                                          const std::function<double()>& seconds_left) {
  if (!can_be_asked(work.item->params)) return {};
  for (const Case& c : cases_to_ask(*work.item, worst_seq)) {
    const bool whole = c.params.seqs == work.item->params.seqs;
    if (whole && c.params.seqs.size() > 1 && launch_s * launches_for(c.params) > seconds_left()) continue;
    if (refusal(*work.kernel, table, device, c)) continue;
    const WorkloadPlan plan = plan_workload(c, layout_for(*work.kernel));
    if (std::ssize(plan.kv_owners) * c.params.num_heads_kv * c.params.dim_v() > kMostBytes) continue;
    WeightLaunches launches(work, device, table, launcher, c, seconds_left);
    if (!launches.wrong() || !launches.in_time()) continue;
    std::vector<std::string> clues = launches.all();
    for (std::string& clue : clues) {
      if (!whole)
        clue += fmt::format("; seq 0 is here a sequence alone, of {} queries and {} keys",
                            c.params.seqs.front().q, c.params.seqs.front().k);
    }
    return clues;
  }
  return {};
}

}  // namespace attnbench
