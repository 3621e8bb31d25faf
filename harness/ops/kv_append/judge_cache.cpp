#include "harness/ops/kv_append/judge_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "harness/judge/interval.h"
#include "harness/ops/kv_append/tensors_scales.h"
#include "harness/tensors/descales.h"

namespace attnbench {
namespace {

class CacheCheck {
 public:
  CacheCheck(const Workload& w, const AppendedRows& rows, bool is_v, const HostOutputs& outputs)
      : case_(w.item()),
        plan_(w.plan()),
        rows_(rows),
        is_v_(is_v),
        got_(is_v && !w.item().params.one_row ? outputs.v_cache : outputs.k_cache),
        scales_(is_v ? outputs.v_scales : outputs.k_scales),
        job_(w.cache_job(is_v)),
        scale_at_(row_scale_strides(case_.params, is_v, w.padded())),
        scales_expected_(scales_before(case_, plan_, is_v, w.padded())),
        expected_(got_.blank()),  // 0xff: the padding between rows
        offset_(element_offset(w, is_v)) {}

  std::optional<std::string> run(WorstElement& worst) {
    if (auto wrong = check_scales(worst)) return wrong;
    lay_before();

    // Rows that lie within their intervals are copied into `expected_`. Then one comparison of all bytes
    // completes the check.
    std::atomic<int64_t> first{job_.num_rows};
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < job_.num_rows; ++r) {
      if (plan_.appended[static_cast<std::size_t>(r)].seq < 0) continue;
      for (int32_t h = 0; h < job_.num_heads; ++h) {
        if (lay_over(r, h, nullptr)) continue;
        int64_t seen = first.load();
        while (r < seen && !first.compare_exchange_weak(seen, r)) {
        }
      }
    }
    if (first < job_.num_rows) {
      for (int32_t h = 0; h < job_.num_heads; ++h) {
        if (!lay_over(first, h, &worst)) return text(first, worst);
      }
    }
    if (got_ == expected_) return std::nullopt;
    return first_difference(worst);
  }

  /// In place of run(): all that the cache must hold.
  const HostBytes& expected() {
    lay_before();
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < job_.num_rows; ++r) {
      for (int32_t h = 0; new_row(r).seq >= 0 && h < job_.num_heads; ++h) lay_over(r, h, nullptr, true);
    }
    return expected_;
  }
  const std::vector<float>& expected_scales() {
    WorstElement worst;
    check_scales(worst);
    return scales_expected_;
  }

  /// After run() has found computed scales wrong: which mistake gives all of them; may be empty.
  std::string scale_clue() const {
    if (laid_) return "";
    const auto n = static_cast<std::size_t>(job_.head_dim);
    struct Scale {
      double got, before;
      Interval right, unturned, other;
    };
    std::vector<Scale> all;
    std::vector<double> x(n), slack(n);
    const auto interval = [&](bool of_v, const RowOwner& o, int32_t h, RowTurn turn) {
      rows_.row(of_v, o, h, x, slack, turn);
      return computed_scale(job_.dtype, x, slack);
    };
    const std::vector<float> before = scales_before(case_, plan_, is_v_, false);
    for (int64_t r = 0; r < job_.num_rows; ++r) {
      const RowOwner o = new_row(r);
      for (int32_t h = 0; o.seq >= 0 && h < job_.num_heads; ++h) {
        const auto i = static_cast<std::size_t>(scale_at_.offset(r, h));
        all.push_back({static_cast<double>(scales_[i]),
                       i < before.size() ? static_cast<double>(before[i]) : NAN,
                       interval(is_v_, o, h, RowTurn::kRight), interval(is_v_, o, h, RowTurn::kNone),
                       interval(!is_v_, o, h, RowTurn::kRight)});
      }
    }
    const char* name = is_v_ ? "V" : "K";
    const auto all_are = [&](auto fits) { return std::ranges::all_of(all, fits); };
    const auto middle = [](const Interval& of) { return of.lo + (of.hi - of.lo) / 2; };
    if (all_are([](const Scale& s) { return std::isnan(s.got) || s.got == s.before; }))
      return fmt::format("looks like: computed scales of {} are not stored", name);
    if (case_.params.dim_of_kv(true) == case_.params.dim_of_kv(false) &&
        all_are([](const Scale& s) { return contains(s.other, s.got); }))
      return fmt::format("looks like: {} has the computed scales of the other tensor", name);
    if (all_are([](const Scale& s) { return contains(s.unturned, s.got); }))
      return fmt::format("looks like: scales of {} are computed of rows that are not rotated", name);
    if (all_are([&](const Scale& s) { return std::abs(s.got * middle(s.right) - 1) < 1e-5; }))
      return fmt::format("looks like: the inverse of computed scales of {} is stored", name);
    const double factor = all.front().got / middle(all.front().right);
    if (!all_are([&](const Scale& s) { return std::abs(s.got / middle(s.right) / factor - 1) < 1e-5; }))
      return "";
    const double divisor = static_cast<double>(largest_number(job_.dtype)) / factor;
    return fmt::format("looks like: computed scales of {} are the largest magnitude over {:.5g}, not over {}",
                       name, divisor, largest_number(job_.dtype));
  }

  /// After run() has found something wrong in rows.
  CacheFindings findings() {
    if (!laid_) return {};
    return find_in_cache(job_.num_rows, job_.num_heads,
                         {[this](const CacheRow& row) { return is_wrong(row); },
                          [this](const CacheRow& row) { return new_row(row.row).seq >= 0; },
                          [this](const CacheMistake& m, const CacheRow& row) { return gives(m, row); },
                          [this](const CacheRow& row) { return other_clue(row); }});
  }

 private:
  /// Fills `expected_` with what the cache holds before the launch.
  void lay_before() {
    job_.base = expected_.data() + offset_ * static_cast<int64_t>(dtype_size(job_.dtype));
    job_.owners = plan_.kv_owners.data();
    fill_host(job_, expected_.holes());
    laid_ = true;
    if (case_.params.one_row) skip_other_part();
  }

  std::size_t row_bytes() const { return static_cast<std::size_t>(job_.head_dim) * dtype_size(job_.dtype); }
  bool has(const CacheRow& row, const unsigned char* bytes) const {
    return std::memcmp(&got_[at(row.row, row.head) * dtype_size(job_.dtype)], bytes, row_bytes()) == 0;
  }
  RowOwner new_row(int64_t r) const {
    return r >= 0 && r < job_.num_rows ? plan_.appended[static_cast<std::size_t>(r)] : RowOwner{-1, 0};
  }

  bool is_wrong(const CacheRow& row) {
    if (new_row(row.row).seq >= 0 && !lay_over(row.row, row.head, nullptr)) return true;
    return !has(row, &expected_[at(row.row, row.head) * dtype_size(job_.dtype)]);
  }

  bool gives(const CacheMistake& m, const CacheRow& row) const {
    const CaseParams& p = case_.params;
    const bool rounds = p.rounds_new(is_v_), scaled = rounds && !p.computes_scales(is_v_);
    if (m.scale == RowScale::kAgain ? rounds || !p.append || dtype_size(job_.dtype) != 1
                                    : m.scale != RowScale::kRight && !scaled)
      return false;
    if (m.number != RowNumber::kRight &&
        (!rounds || is_fp8(job_.dtype) != (m.number == RowNumber::kOtherFloat)))
      return false;
    if (m.turn != RowTurn::kRight && (is_v_ || p.rotary == Rotary::kNone)) return false;
    if (m.other_tensor && p.dim_of_kv(true) != p.dim_of_kv(false)) return false;
    const RowOwner from = m.kept ? RowOwner{-1, 0} : new_row(row.row - m.slots - m.blocks * job_.block_size);
    if (from.seq >= 0) return holds(m, row, from, m.head_of(row.head, job_.num_heads));
    const auto before = filled_row(job_, plan_.kv_owners[static_cast<std::size_t>(row.row)]);
    return has(row, &before[static_cast<std::size_t>(row.head) * row_bytes()]);
  }

  bool holds(const CacheMistake& m, const CacheRow& row, const RowOwner& from, int32_t head) const {
    const auto n = static_cast<std::size_t>(job_.head_dim);
    std::vector<double> x(n), slack(n);
    const bool of_v = is_v_ != m.other_tensor;
    rows_.row(of_v, from, head, x, slack, m.other_tensor && is_v_ ? RowTurn::kNone : m.turn);
    for (std::size_t c = 0; c < n; ++c) {
      DType type = job_.dtype;
      if (m.number == RowNumber::kOtherFloat) type = type == DType::kE4m3 ? DType::kE5m2 : DType::kE4m3;
      const double stored = load_float(type, got_.data(), static_cast<int64_t>(at(row.row, row.head) + c));
      const double scale = scale_of(row.row, row.head, c, m.scale);
      const bool again = m.scale == RowScale::kAgain;
      const Interval real{(x[c] - slack[c]) / (again ? scale : 1), (x[c] + slack[c]) / (again ? scale : 1)};
      Interval fits = rounded_to(type, case_.params.rounds_new(is_v_) ? quotient(real, scale) : real);
      if (m.number == RowNumber::kTruncated || m.number == RowNumber::kWraps) {
        fits = quotient(real, scale);
        for (double* end : {&fits.lo, &fits.hi}) {
          *end = m.number == RowNumber::kTruncated
                     ? std::clamp(std::trunc(*end), -128.0, 127.0)
                     : static_cast<double>(static_cast<int8_t>(std::lrint(*end) & 0xff));
        }
      }
      if (!contains(fits, stored)) return false;
    }
    return true;
  }

  std::string other_clue(const CacheRow& row) const {
    const char* name = is_v_ ? "V" : "K";
    for (int64_t r = 0; r < job_.num_rows; ++r) {
      for (int32_t h = 0; new_row(r).seq >= 0 && h < job_.num_heads; ++h) {
        if (!holds({}, row, new_row(r), h)) continue;
        return fmt::format(
            "looks like: rows change places: slot {} head {} of {} has what belongs to slot {} head {}",
            row.row, row.head, name, r, h);
      }
    }
    if (new_row(row.row).seq >= 0) return other_numbers(row, name);
    const bool padding = std::ranges::any_of(plan_.slot_mapping, [](int64_t slot) { return slot < 0; });
    return fmt::format("slot {} of {} is written, which no token has: perhaps by {}one token too many",
                       row.row, name, padding ? "a padding token, whose slot is -1, or by " : "");
  }

  /// A row that has its own token in other numbers.
  std::string other_numbers(const CacheRow& row, const char* name) const {
    const auto n = static_cast<std::size_t>(job_.head_dim), e = dtype_size(job_.dtype);
    std::vector<double> x(n), slack(n);
    rows_.row(is_v_, new_row(row.row), row.head, x, slack);
    std::vector<unsigned char> right(n * e);
    std::size_t first_wrong = n, last_right = 0;
    double xy = 0, xx = 0, yy = 0;
    for (std::size_t c = 0; c < n; ++c) {
      const double scale = scale_of(row.row, row.head, c), value = x[c] / scale;
      const double stored =
          load_float(job_.dtype, got_.data(), static_cast<int64_t>(at(row.row, row.head) + c));
      store_float(job_.dtype, right.data(), static_cast<int64_t>(c), static_cast<float>(value));
      const bool fits = contains(allowed(x[c], slack[c], scale), stored);
      if (!fits) first_wrong = std::min(first_wrong, c);
      if (fits) last_right = c;
      xy += value * stored, xx += value * value, yy += stored * stored;
    }
    const auto before = filled_row(job_, plan_.kv_owners[static_cast<std::size_t>(row.row)]);
    std::string found = unwritten_channels(&got_[at(row.row, row.head) * e], right.data(),
                                           &before[static_cast<std::size_t>(row.head) * row_bytes()],
                                           job_.head_dim, job_.dtype, name);
    const auto width = static_cast<std::size_t>(case_.params.rotary_width());
    if (found.empty() && case_.params.rotary != Rotary::kNone && !is_v_ && width < n && last_right < n - 1)
      found =
          fmt::format("channels of {} from {} on are no copies: perhaps all channels turn, not the first {}",
                      name, width, width);
    const double factor = xy / xx, roundoff = 2 * unit_roundoff(job_.dtype);
    if (found.empty() && e == 1 && yy - factor * xy <= roundoff * roundoff * yy)
      found = fmt::format(
          "slot {} head {} of {} is right but for a factor of {:.3g}: perhaps it has another scale", row.row,
          row.head, name, factor);
    return found;
  }

  /// The stored numbers that are right for a value and its slack.
  Interval allowed(double x, double slack, double scale) const {
    const Interval real{x - slack, x + slack};
    return rounded_to(job_.dtype, case_.params.rounds_new(is_v_) ? quotient(real, scale) : real);
  }

  /// Checks all computed scales. Scales of appended rows must lie within the float32 interval of their
  /// definition; all others must be unchanged. Makes `scales_expected_` right.
  std::optional<std::string> check_scales(WorstElement& worst) {
    std::optional<std::string> wrong;
    const auto n = static_cast<std::size_t>(job_.head_dim);
    std::vector<double> x(n), slack(n);
    for (int64_t r = 0; r < job_.num_rows && !scales_expected_.empty(); ++r) {
      const RowOwner owner = plan_.appended[static_cast<std::size_t>(r)];
      for (int32_t h = 0; h < job_.num_heads; ++h) {
        const auto i = static_cast<std::size_t>(scale_at_.offset(r, h));
        double expected = static_cast<double>(scales_expected_[i]);
        if (owner.seq < 0) {
          if (std::bit_cast<uint32_t>(scales_expected_[i]) == std::bit_cast<uint32_t>(scales_[i])) continue;
        } else {
          rows_.row(is_v_, owner, h, x, slack);
          const Interval scale = computed_scale(job_.dtype, x, slack);
          if (contains(scale, static_cast<double>(scales_[i]))) {
            scales_expected_[i] = scales_[i];
            continue;
          }
          expected = scale.lo + (scale.hi - scale.lo) / 2;
          scales_expected_[i] = static_cast<float>(expected);
        }
        if (wrong) continue;
        worst = {owner.seq, owner.pos, h, -1, static_cast<double>(scales_[i]), expected, 0};
        wrong = fmt::format("{} slot {} head {}: got {:.9g}, expected {:.9g} ({})", scales_name(), r, h,
                            worst.got, worst.expected, whose(r));
      }
    }
    if (wrong || scales_.empty() ||
        std::memcmp(scales_expected_.data(), scales_.data(), scales_.size() * sizeof(float)) == 0) {
      return wrong;
    }
    return fmt::format("{}: bytes between rows differ", scales_name());
  }

  /// The scale of appended row `r`: factor of its stored numbers.
  double scale_of(int64_t r, int32_t h, std::size_t channel, RowScale which = RowScale::kRight) const {
    if (which == RowScale::kAgain) return stored_scale(r, is_v_, h, static_cast<int32_t>(channel));
    if (!case_.params.rounds_new(is_v_)) return 1.0;
    if (case_.params.computes_scales(is_v_)) {
      return static_cast<double>(scales_[static_cast<std::size_t>(scale_at_.offset(r, h))]);
    }
    if (which == RowScale::kNone) return 1.0;
    const int32_t head = which == RowScale::kHead0      ? 0
                         : which == RowScale::kNextHead ? (h + 1) % job_.num_heads
                                                        : h;
    const double scale = stored_scale(r, is_v_ != (which == RowScale::kOtherTensor), head,
                                      which == RowScale::kChannel0 ? 0 : static_cast<int32_t>(channel));
    return which == RowScale::kInverse ? 1 / scale : scale;
  }
  double stored_scale(int64_t r, bool of_v, int32_t head, int32_t channel) const {
    if (case_.params.does().appends) return static_cast<double>(given_scale(case_, of_v, head, channel));
    const RowOwner& o = plan_.appended[static_cast<std::size_t>(r)];
    return static_cast<double>(
        descale_of(case_, of_v ? Tensor::kV : Tensor::kK, o.seq, o.pos, head, channel));
  }

  const char* scales_name() const { return is_v_ ? "v_scales" : "k_scales"; }

  std::size_t at(int64_t r, int32_t h) const {
    return static_cast<std::size_t>(offset_ + fill_offset(job_, r, h));
  }

  /// Elements of a row of the cache before the part that is checked.
  static int64_t element_offset(const Workload& w, bool is_v) {
    return w.item().params.one_row && !is_v ? w.item().params.dim_v() : 0;
  }

  /// `one_row`: takes the other tensor's part of each row as it is. Its own check judges it.
  void skip_other_part() {
    const CaseParams& p = case_.params;
    const int64_t size = static_cast<int64_t>(dtype_size(job_.dtype));
    const int64_t begin = is_v_ ? p.dim_v() : 0, bytes = size * p.dim_of_kv(!is_v_);
    for (int64_t r = 0; r < job_.num_rows; ++r) {
      for (int32_t h = 0; h < job_.num_heads; ++h) {
        const int64_t first = (fill_offset(job_, r, h) + begin) * size;
        if (got_.in_hole(first)) continue;
        std::copy_n(got_.begin() + first, bytes, expected_.begin() + first);
      }
    }
  }

  /// Writes appended row r, head h to `expected_`. Returns false if an element is outside its interval, and
  /// describes the element in `worst`. `all`: goes on with what is right there.
  bool lay_over(int64_t r, int32_t h, WorstElement* worst, bool all = false) {
    const RowOwner owner = plan_.appended[static_cast<std::size_t>(r)];
    const auto n = static_cast<std::size_t>(job_.head_dim);
    const std::size_t size = dtype_size(job_.dtype);
    std::vector<double> x(n), slack(n);
    rows_.row(is_v_, owner, h, x, slack);
    for (std::size_t c = 0; c < n; ++c) {
      const auto i = static_cast<int64_t>(at(r, h) + c);
      if (rows_.copied(is_v_)) {
        store_float(job_.dtype, expected_.data(), i, static_cast<float>(x[c]));
        continue;
      }
      const double stored = load_float(job_.dtype, got_.data(), i);
      const double scale = scale_of(r, h, c);
      if (!contains(allowed(x[c], slack[c], scale), stored)) {
        if (worst) *worst = {owner.seq, owner.pos, h, static_cast<int>(c), stored, x[c] / scale, 0};
        if (!all) return false;
        store_float(job_.dtype, expected_.data(), i, static_cast<float>(x[c] / scale));
        continue;
      }
      std::memcpy(&expected_[static_cast<std::size_t>(i) * size], &got_[static_cast<std::size_t>(i) * size],
                  size);
    }
    return true;
  }

  std::string text(int64_t r, const WorstElement& w) const {
    return fmt::format("{} slot {} head {} channel {}: got {:.9g}, expected {:.9g} ({})",
                       is_v_ ? "v_cache" : "k_cache", r, w.head, w.channel, w.got, w.expected, whose(r));
  }

  std::string whose(int64_t r) const {
    const RowOwner added = plan_.appended[static_cast<std::size_t>(r)];
    const RowOwner kept = plan_.kv_owners[static_cast<std::size_t>(r)];
    return added.seq >= 0  ? fmt::format("seq {} pos {}, appended", added.seq, added.pos)
           : kept.seq >= 0 ? fmt::format("seq {} pos {}, must stay", kept.seq, kept.pos)
                           : "a slot that nothing may write";
  }

  std::string first_difference(WorstElement& worst) const {
    const std::size_t e = dtype_size(job_.dtype);
    for (int64_t r = 0; r < job_.num_rows; ++r) {
      const RowOwner added = plan_.appended[static_cast<std::size_t>(r)];
      const RowOwner owner = added.seq >= 0 ? added : plan_.kv_owners[static_cast<std::size_t>(r)];
      for (int32_t h = 0; h < job_.num_heads; ++h) {
        if (got_.in_hole(static_cast<int64_t>(at(r, h) * e))) continue;
        for (int32_t c = 0; c < job_.head_dim; ++c) {
          const std::size_t i = at(r, h) + static_cast<std::size_t>(c);
          if (std::memcmp(&got_[i * e], &expected_[i * e], e) == 0) continue;
          worst = {owner.seq,
                   owner.pos,
                   h,
                   c,
                   load_float(job_.dtype, got_.data(), static_cast<int64_t>(i)),
                   load_float(job_.dtype, expected_.data(), static_cast<int64_t>(i)),
                   0};
          return text(r, worst);
        }
      }
    }
    return fmt::format("{}: bytes between rows differ", is_v_ ? "v_cache" : "k_cache");
  }

  const Case& case_;
  const WorkloadPlan& plan_;
  const AppendedRows& rows_;
  const bool is_v_;
  const HostBytes& got_;
  const std::vector<float>& scales_;
  FillJob job_;
  const KvStrides scale_at_;
  std::vector<float> scales_expected_;
  HostBytes expected_;
  const int64_t offset_;
  bool laid_ = false;  ///< expected_ holds all rows: the scales are right
};

}  // namespace

void check_caches(const Workload& w, const AppendedRows& rows, const HostOutputs& outputs, Verdict& v) {
  std::array<CacheFindings, 2> found;
  bool told = false;
  for (const bool is_v : {false, true}) {
    CacheCheck check(w, rows, is_v, outputs);
    WorstElement worst;
    const auto wrong = check.run(worst);
    if (!wrong) continue;
    found[is_v] = check.findings();
    if (std::string clue = check.scale_clue(); !clue.empty()) v.clues.push_back(std::move(clue));
    if (std::exchange(told, true)) continue;
    if (v.pass) v.worst = worst;
    v.fail(detector::kCacheBits, *wrong);
  }
  for (std::string& clue : cache_clues(found)) v.clues.push_back(std::move(clue));
}

void expect_caches(const Workload& w, const AppendedRows& rows, const HostOutputs& got, ExpectedOutputs& e) {
  const auto bytes = [](const std::vector<float>& x) {
    return reinterpret_cast<const unsigned char*>(x.data());
  };
  HostOutputs launched = got;
  for (const bool is_v : {false, true}) {
    const std::vector<float>& scales = is_v ? got.v_scales : got.k_scales;
    if (scales.empty()) continue;
    std::vector<float>& right = is_v ? launched.v_scales : launched.k_scales;
    right = CacheCheck(w, rows, is_v, got).expected_scales();
    e.tensors.push_back(not_compared(is_v ? "v_scales" : "k_scales", {std::ssize(scales)}));
    put_bits(e.tensors.back(), DType::kFp32, bytes(right), bytes(scales));
  }
  const CaseParams& p = w.item().params;
  for (const bool is_v : {false, true}) {
    const HostBytes& cache = is_v && !p.one_row ? got.v_cache : got.k_cache;
    const DType type = is_v ? p.type_of_v() : p.type_of_k();
    if (!is_v || !p.one_row)
      e.tensors.push_back(not_compared(is_v ? "v_cache" : "k_cache",
                                       {cache.size() / static_cast<int64_t>(dtype_size(type))}));
    CacheCheck check(w, rows, is_v, launched);
    const HostBytes& right = check.expected();
    put_bits(e.tensors.back(), type, right.data(), cache.data(), &cache);
  }
}

}  // namespace attnbench
