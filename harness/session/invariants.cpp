#include "harness/session/invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "harness/cases/visible_keys.h"
#include "harness/judge/bitwise.h"
#include "harness/judge/clues.h"
#include "harness/judge/verify.h"
#include "harness/launch/served.h"
#include "harness/ops/attention_backward/judge_parts.h"

namespace attnbench {
namespace {

using Outcome = InvariantResult::Outcome;

constexpr uint64_t kOtherPlaces = 0x5eed;
constexpr int32_t kMostSplits = 64;

/// The case with other sequences or in another layout; the layout says which sequences of the base it
/// computes.
struct Variant {
  Case item;
  LayoutVariant layout;
};

class Invariants {
 public:
  Invariants(const WorkItem& work, Device& device, Launcher& launcher, Workload& workload,
             const HostOutputs& outputs, const InvariantOptions& options, Verdict& verdict)
      : base_(*work.item),
        p_(base_.params),
        kernel_(*work.kernel),
        device_(device),
        launcher_(launcher),
        workload_(workload),
        outputs_(outputs),
        options_(options),
        verdict_(verdict),
        launch_was_right_(verdict.pass) {}

  void check_all() {
    repeat();
    page_shuffle();
    strides();
    nhd_hnd();
    lead_rows();
    packed_paged();
    batch_permutation();
    alone();
    merge();
    num_splits();
    one_call();
    replay();
    look_for_race();
  }

  void check_backward() {
    repeat();
    strides();
    lead_rows();
    batch_permutation();
    alone();
    zero_d_out();
    twice_d_out();
  }

  /// For kv_append, kv_move and merge_states.
  void check_other_op() {
    if (const auto v = judged_with_padded_strides()) {
      add("strides", v->pass ? Outcome::kHeld : Outcome::kBroken, v->reason);
    }
  }

 private:
  void add(const char* name, Outcome outcome, const std::string& note = "") {
    verdict_.invariants.push_back({name, outcome, note});
    if (outcome == Outcome::kBroken) {
      verdict_.fail(std::string(detector::kInvariant) + name,
                    fmt::format("invariant {} ({}{}): {}", name, invariant_words(name),
                                launch_was_right_ ? "; the launch of the case itself is right" : "", note));
    }
  }

  /// The outputs of a variant, in memory of its own. `elsewhere`: other tensors of it are launched first, and stay, so that
  /// these have other addresses.
  HostOutputs launched(const Variant& v, float d_out_factor = 1, bool elsewhere = false) {
    Workload workload(device_, v.item, layout_for(kernel_, v.layout));
    if (d_out_factor != 1) workload.scale_input("d_out", p_.dtype, d_out_factor);
    Launcher launcher(kernel_, options_.table, device_, workload, &launcher_);
    workload.reset_outputs();
    launcher.launch();
    device_.synchronize();
    return elsewhere ? launched(v, d_out_factor) : launcher.outputs(workload);
  }

  /// Launches a variant. If the kernel or the device cannot, adds a line to the verdict and returns nullopt.
  std::optional<HostOutputs> launch(const char* name, Variant v, float d_out_factor = 1) {
    v.layout.at_page_begin = true;
    if (auto why = refusal(kernel_, options_.table, device_, v.item, v.layout.padded_strides)) {
      add(name, Outcome::kSkipped, why->text);
      return std::nullopt;
    }
    options_.begins(name);
    try {
      HostOutputs outputs = launched(v, d_out_factor);
      if (outputs.unused_written.empty()) return outputs;
      add(name, Outcome::kBroken, outputs.unused_written);
      return std::nullopt;
    } catch (const PlanRefused& e) {
      add(name, Outcome::kSkipped, e.what());
      return std::nullopt;
    } catch (const OutOfMemory& e) {
      add(name, Outcome::kSkipped, e.what());
      return std::nullopt;
    }
  }

  Verdict judged(const Case& c, const HostOutputs& o) {
    return noted(verify_launch(c, o, launcher_.numerics(), options_.check, 0));
  }
  /// Keeps the seed of rows that were wrong, for the repro line.
  Verdict noted(Verdict v) {
    if (!v.pass && v.rows_seed != 0) verdict_.rows_seed = v.rows_seed;
    return v;
  }

  /// Equal bits hold. Other bits break the invariant if a `promise` of the kernel, which may be null, says that they
  /// are equal; else the tolerance decides.
  void judge(const char* name, const HostOutputs& other, const char* promise) {
    const auto difference = first_difference(base_, outputs_, other);
    if (!difference) return add(name, Outcome::kHeld);
    const Verdict v = judged(base_, other);
    if (!v.pass) return add(name, Outcome::kBroken, promise != nullptr ? *difference : v.reason);
    if (promise == nullptr) return add(name, Outcome::kDiffers, *difference);
    add(name, Outcome::kBroken,
        fmt::format("{}; both are within the tolerance, but the kernel promises equal bits ({})", *difference,
                    promise));
  }

  void compare(const char* name, const Variant& v, const char* promise) {
    const auto other = launch(name, v);
    if (!other) return;
    judge(name, laid_over(base_, outputs_, v.item, *other, v.layout.seq_ids), promise);
    if (verdict_.invariants.back().outcome == Outcome::kBroken && launch_was_right_) look_elsewhere(name, v);
  }

  /// Whether a variant that was wrong is wrong where it was, and right at addresses that no launch had.
  void look_elsewhere(const char* name, const Variant& v) {
    const auto right = [&](bool elsewhere) {
      const HostOutputs o = laid_over(base_, outputs_, v.item, launched(v, 1, elsewhere), v.layout.seq_ids);
      return !first_difference(base_, outputs_, o) || judged(base_, o).pass;
    };
    try {
      if (right(false) || !right(true)) return;
      verdict_.clues.push_back(fmt::format(
          "the launch of invariant {} is right at other addresses: the kernel keeps something from launch to launch by "
          "address (checked by running it again there), so the invariant itself need not be broken",
          name));
    } catch (const Error&) {  // the invariant's verdict stands
    }
  }

  /// The name of a promise, or null if the kernel does not make it.
  const char* deterministic() const { return promised(kDeterministic, "deterministic"); }
  const char* paging_invariant() const { return promised(kPagingInvariant, "paging_invariant"); }
  const char* promised(KernelFlag flag, const char* name) const {
    return (kernel_.flags & flag) != 0 ? name : nullptr;
  }
  /// A cascade attends its prefix with the queries of the whole batch, so it is never batch-invariant.
  const char* batch_invariant() const {
    return p_.path == Path::kCascade ? nullptr : promised(kBatchInvariant, "batch_invariant");
  }

  void launch_again() {
    workload_.reset_outputs();
    launcher_.launch();
    device_.synchronize();
  }

  /// The same launch again.
  void repeat() {
    options_.begins("repeat");
    const uint64_t before = workload_.outputs_digest();
    for (int i = 1; i < options_.repeats; ++i) {
      launch_again();
      if (workload_.outputs_digest() == before) continue;
      const auto difference = first_difference(base_, outputs_, launcher_.outputs(workload_));
      const std::string where =
          fmt::format("launch {} of {}: {}", i + 1, options_.repeats, difference.value_or("other bits"));
      if (deterministic()) return add("repeat", Outcome::kBroken, where);
      const Verdict v = judged(base_, launcher_.outputs(workload_));
      if (!v.pass) return add("repeat", Outcome::kBroken, fmt::format("launch {}: {}", i + 1, v.reason));
      return add("repeat", Outcome::kDiffers, where);
    }
    add("repeat", Outcome::kHeld);
  }

  /// Where an invariant is broken, says whether the case's own launch gives other results, too, when it is repeated.
  void look_for_race() {
    if (verdict_.pass || !launch_was_right_) return;
    options_.begins("repeat");
    for (int i = 0; i < 4; ++i) {
      launch_again();
      const HostOutputs o = launcher_.outputs(workload_);
      if (!first_difference(base_, outputs_, o) || (!deterministic() && judged(base_, o).pass)) continue;
      verdict_.clues.push_back(
          fmt::format("the launch of the case itself gives other numbers when it is repeated: {}", kARace));
      return;
    }
  }

  /// Moves pages, or rows of a contiguous cache, to other places in the pool.
  void page_shuffle() {
    if (p_.kv == KvSource::kPacked) return;
    Variant v{base_, {}};
    if (p_.shared_tokens() == 0) v.item.params.page_layout = PageLayout::kShuffled;
    v.item.params.shuffled_cache = true;
    v.layout.salt = kOtherPlaces;
    compare("page_shuffle", v, deterministic());
  }

  std::optional<Verdict> judged_with_padded_strides() {
    if (auto why = refusal(kernel_, options_.table, device_, base_, true)) {
      add("strides", Outcome::kSkipped, why->text);
      return std::nullopt;
    }
    options_.begins("strides");
    try {
      LayoutVariant layout;
      layout.padded_strides = layout.at_page_begin = true;
      Workload workload(device_, base_, layout_for(kernel_, layout));
      Launcher launcher(kernel_, options_.table, device_, workload, &launcher_);
      workload.reset_outputs();
      launcher.launch();
      device_.synchronize();
      const HostOutputs outputs = launcher.outputs(workload);
      Verdict v = noted(verify(workload, outputs, launcher.numerics(), options_.check));
      if (const auto damage = workload.guard_damage()) v.fail(detector::kGuard, *damage);
      if (!outputs.stray.empty()) v.fail(detector::kGuard, outputs.stray);
      return v;
    } catch (const PlanRefused& e) {
      add("strides", Outcome::kSkipped, e.what());
      return std::nullopt;
    } catch (const OutOfMemory& e) {
      add("strides", Outcome::kSkipped, e.what());
      return std::nullopt;
    }
  }

  /// Pads the strides of rows, heads and blocks, differently in each tensor.
  void strides() {
    if (p_.append) {  // checks the caches too
      const auto judged = judged_with_padded_strides();
      if (!judged) return;
      if (!judged->pass) return add("strides", Outcome::kBroken, judged->reason);
    }
    Variant v{base_, {}};
    v.layout.padded_strides = true;
    const auto other = launch("strides", v);
    if (!other) return;
    if (!other->stray.empty()) return add("strides", Outcome::kBroken, other->stray);
    judge("strides", laid_over(base_, outputs_, v.item, *other, v.layout.seq_ids), deterministic());
  }

  void nhd_hnd() {
    if (p_.kv != KvSource::kPaged) return;
    Variant v{base_, {}};
    v.item.params.kv_layout = p_.kv_layout == KvLayout::kNhd ? KvLayout::kHnd : KvLayout::kNhd;
    compare("nhd_hnd", v, deterministic());
  }

  /// cu_seqlens that start at another value than 0.
  void lead_rows() {
    if (p_.dropout > 0) return;  // the dropout mask depends on row numbers
    if ((kernel_.flags & kServesDecode) != 0 &&
        std::ranges::all_of(p_.seqs, [](const SeqLen& s) { return s.q == 1; }))
      return add("lead_rows", Outcome::kSkipped, "the kernel serves decode: sequence b has row b of q");
    Variant v{base_, {}};
    v.layout.lead_rows = 3;
    compare("lead_rows", v, deterministic());
  }

  void packed_paged() {
    if (p_.shared_tokens() > 0 || p_.blocks || p_.path == Path::kDcp) return;  // needs pages
    if (p_.append) return;                                                     // packed keys are no cache
    Variant v{base_, {}};
    v.item.params.kv = p_.kv == KvSource::kPacked ? KvSource::kPaged : KvSource::kPacked;
    v.item.params = normalised(v.item.params);
    // A kernel may cut paged and packed keys into other tiles.
    compare("packed_paged", v, paging_invariant());
  }

  Variant of_sequences(const std::vector<int32_t>& ids) const {
    Variant v{base_, {}};
    v.layout.seq_ids = ids;
    v.item.params.seqs.clear();
    for (const int32_t id : ids) v.item.params.seqs.push_back(p_.seqs[static_cast<std::size_t>(id)]);
    return v;
  }

  void batch_permutation() {
    if (p_.seqs.size() < 2 || p_.dropout > 0 || p_.blocks) return;
    if (p_.path == Path::kSplitDecode) return;  // decodes must come first in the batch
    std::vector<int32_t> ids(p_.seqs.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::rotate(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>((ids.size() + 1) / 2), ids.end());
    compare("batch_permutation", of_sequences(ids), batch_invariant());
  }

  /// The first, the last and the longest sequence that have queries, each as a batch of one.
  void alone() {
    if (p_.seqs.size() < 2 || p_.dropout > 0 || p_.blocks) return;
    std::optional<int32_t> first, last, longest;
    for (std::size_t b = 0; b < p_.seqs.size(); ++b) {
      if (p_.seqs[b].q == 0) continue;
      last = static_cast<int32_t>(b);
      if (!first) first = last;
      if (!longest || p_.seqs[b].k > p_.seqs[static_cast<std::size_t>(*longest)].k) longest = last;
    }
    if (!first) return;
    HostOutputs joined = outputs_;
    for (const int32_t id : std::set<int32_t>{*first, *last, *longest}) {
      const Variant v = of_sequences({id});
      const auto other = launch("alone", v);
      if (!other) return;
      joined = laid_over(base_, std::move(joined), v.item, *other, v.layout.seq_ids);
    }
    judge("alone", joined, batch_invariant());
  }

  /// Attends the keys before a cut and those from it on separately, merges the states and compares with the
  /// reference. Not possible with windows, chunks, ALiBi, top-left masks and rotary_cached, whose places a part of the keys does not
  /// show; with custom masks and lists, which are of all keys; with dropout, whose mask depends on key numbers; or
  /// with probabilities, which belong to one launch. O in e4m3 is no state to merge. A cut may part keys that share a
  /// descale.
  void merge() {
    if (p_.path != Path::kOneCall || p_.shared_tokens() > 0 || p_.blocks)
      return;  // such a path merges parts already
    if (p_.append || p_.dropout > 0 || p_.probs || p_.e4m3_out || p_.rotary_cached || p_.k_descale_rows > 1)
      return;
    if (outputs_.no_lse) return add("merge", Outcome::kSkipped, "the kernel gives no LSE");
    if (p_.window_left >= 0 || p_.window_right >= 0 || p_.alibi != Alibi::kNone || p_.attention_chunk > 0 ||
        has_gaps(p_) || p_.causal.top_left)
      return;
    Variant head{base_, {}};
    Variant tail{base_, {}};
    head.item.params.causal = false;  // all queries come after the prefix
    head.item.params.sinks = false;   // only one part may hold this term
    bool any = false;
    for (std::size_t b = 0; b < p_.seqs.size(); ++b) {
      const SeqLen& s = p_.seqs[b];
      const int32_t cut = p_.causal ? std::max(0, s.k - s.q) / 2 : s.k / 2;
      any = any || (cut > 0 && s.q > 0);
      head.item.params.seqs[b].k = cut;
      tail.item.params.seqs[b].k = s.k - cut;
      tail.layout.first_keys.push_back(cut);
    }
    if (!any) return;
    const auto a = launch("merge", head);
    if (!a) return;
    const auto b = launch("merge", tail);
    if (!b) return;
    Check check = options_.check;
    if (check.mode != CheckMode::kFull) check.mode = CheckMode::kSampleOnly;
    const Verdict v = noted(verify_launch(base_, merged(base_, *a, *b), launcher_.numerics(), check, 0));
    add("merge", v.pass ? Outcome::kHeld : Outcome::kBroken, v.reason);
  }

  /// Cuts the keys into 5 parts, and into more parts than there are keys (64 at most).
  void num_splits() {
    if (!(kernel_.features & kSplitKv) || p_.seqs.empty()) return;
    int32_t longest = 0;
    for (const SeqLen& s : p_.seqs) longest = std::max(longest, s.k);
    for (const int32_t n : std::set<int32_t>{5, std::min(longest + 1, kMostSplits)}) {
      if (n == p_.num_splits) continue;
      Variant parts{base_, {}};
      parts.item.params.num_splits = n;
      const auto other = launch("num_splits", parts);
      if (!other) return;
      const Verdict v = judged(base_, laid_over(base_, outputs_, parts.item, *other, parts.layout.seq_ids));
      if (!v.pass) return add("num_splits", Outcome::kBroken, fmt::format("{} parts: {}", n, v.reason));
    }
    add("num_splits", Outcome::kHeld);
  }

  /// Computes in one launch what a path computes in several.
  void one_call() {
    if (p_.path == Path::kOneCall) return;
    Variant v{base_, {}};
    v.item.params.path = Path::kOneCall;
    v.item.params = normalised(v.item.params);
    compare("one_call", v, nullptr);
  }

  /// Other lengths within the same maxima: sequences change places, and all but the one with the most keys
  /// lose a third of their queries and keys. Returns nullopt if the lengths do not change.
  std::optional<Case> shorter_batch() const {
    Case c = base_;
    std::vector<SeqLen>& seqs = c.params.seqs;
    if (seqs.empty()) return std::nullopt;
    std::rotate(seqs.begin(), seqs.begin() + 1, seqs.end());
    const auto longest = std::max_element(seqs.begin(), seqs.end(),
                                          [](const SeqLen& a, const SeqLen& b) { return a.k < b.k; });
    for (auto s = seqs.begin(); s != seqs.end(); ++s) {
      if (s == longest && (kernel_.flags & kServesPrefill) != 0)
        continue;  // it keeps as many queries as keys
      s->q -= s->q / 3;
      if (s != longest) s->k = std::max({s->k - s->k / 3, p_.shared_tokens(), std::min(s->q, s->k)});
    }
    return seqs == p_.seqs ? std::nullopt : std::optional(c);
  }

  /// Launches again as engines replay a graph that was captured at the largest sizes: lengths, tables and
  /// inputs are exchanged in place. Query rows past the new total are padding and must keep their contents.
  void replay() {
    // The host cuts the parts of a path; caches and probabilities of other lengths are elsewhere in memory.
    if (p_.path != Path::kOneCall || p_.append || p_.probs || p_.dropout > 0) return;
    if (p_.blocks || p_.captured) return;  // they have these lengths only
    if ((kernel_.flags & kHostLengths) != 0)
      return add("replay", Outcome::kSkipped, "the kernel reads lengths on the host, before the launch");
    if (workload_.has_holes())
      return add("replay", Outcome::kSkipped, "other lengths may lie where this case has no memory");
    const std::optional<Case> other = shorter_batch();
    if (!other) return add("replay", Outcome::kSkipped, "no other lengths within the same maxima");
    if (const auto why = not_served(kernel_, *other, false))
      return add("replay", Outcome::kSkipped, why->text);
    options_.begins("replay");
    try {
      Workload workload(device_, base_, layout_for(kernel_));
      Launcher launcher(kernel_, options_.table, device_, workload, &launcher_);
      launcher.launch();
      device_.synchronize();
      std::function<void()> again = [&] { launcher.launch(); };
      if (options_.capture && device_.info().kind == DeviceKind::kCuda) again = device_.capture_graph(again);
      workload.take_inputs_of(Workload(device_, *other, layout_for(kernel_)));
      workload.reset_outputs();
      again();
      device_.synchronize();
      PaddedOutputs got = cut_padding(*other, launcher.outputs(workload));
      if (got.padding_written && !launcher.returns_outputs())
        return add("replay", Outcome::kBroken, *got.padding_written);
      const Verdict v = judged(*other, got.outputs);
      add("replay", v.pass ? Outcome::kHeld : Outcome::kBroken, v.reason);
    } catch (const OutOfMemory& e) {
      add("replay", Outcome::kSkipped, e.what());
    }
  }

  /// Gradients are linear in dO: a factor that is exact in every product is exact in each of them, up to what
  /// subnormal terms lose (first_not_scaled).
  void scaled_d_out(const char* name, float factor) {
    const auto other = launch(name, {base_, {}}, factor);
    if (!other) return;
    const auto wrong = ops::attention_backward::first_not_scaled(base_, outputs_, *other, factor);
    add(name, wrong ? Outcome::kBroken : Outcome::kHeld, wrong.value_or(""));
  }
  void zero_d_out() { scaled_d_out("zero_d_out", 0); }
  /// Only of deterministic kernels. In fp16 small numbers lose digits, in which the factor shows.
  void twice_d_out() {
    const Numerics n = launcher_.numerics();
    if (!deterministic()) return add("twice_d_out", Outcome::kSkipped, "the kernel is not deterministic");
    if (p_.dtype == DType::kFp16 || n.p_type == DType::kFp16 || n.acc_type == DType::kFp16)
      return add("twice_d_out", Outcome::kSkipped, "fp16 has too small a range to be linear");
    scaled_d_out("twice_d_out", 2);
  }

  const Case& base_;
  const CaseParams& p_;
  const Kernel& kernel_;
  Device& device_;
  Launcher& launcher_;
  Workload& workload_;
  const HostOutputs& outputs_;
  const InvariantOptions& options_;
  Verdict& verdict_;
  const bool launch_was_right_;  ///< by the reference
};

}  // namespace

void check_invariants(const WorkItem& work, Device& device, Launcher& launcher, Workload& workload,
                      const HostOutputs& outputs, const InvariantOptions& options, Verdict& verdict) {
  Invariants invariants(work, device, launcher, workload, outputs, options, verdict);
  const OpTraits op = work.item->params.does();
  if (!op.attends) return invariants.check_other_op();
  return op.gradients ? invariants.check_backward() : invariants.check_all();
}

}  // namespace attnbench
