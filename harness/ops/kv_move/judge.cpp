// Judges kv_move: every byte of the destination is known before the launch.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "harness/ops/judge_ops.h"

#include "harness/judge/cache_mistakes.h"
#include "harness/tensors/descales.h"

namespace attnbench {
namespace {

class MoveCheck {
 public:
  MoveCheck(const Workload& w, bool is_v, const HostOutputs& outputs)
      : case_(w.item()),
        plan_(w.plan()),
        is_v_(is_v),
        got_(is_v ? outputs.v_cache : outputs.k_cache),
        job_(w.cache_job(is_v)),
        after_(plan_.kv_owners),
        expected_(got_.blank()) {}  // 0xff: the padding between rows

  std::optional<std::string> run(WorstElement& worst) {
    for (std::size_t r = 0; r < after_.size() && !rounds(); ++r) {
      if (plan_.appended[r].seq >= 0) after_[r] = plan_.appended[r];
    }
    job_.base = expected_.data();
    job_.owners = after_.data();
    fill_host(job_, expected_.holes());
    if (rounds()) {
#pragma omp parallel for schedule(static)
      for (int64_t r = 0; r < job_.num_rows; ++r) lay_product(r);
    }
    if (got_ == expected_) return std::nullopt;
    return first_difference(worst);
  }

  /// After run(): sets what the destination must hold.
  void put_expected(ExpectedOutputs& e) const {
    e.tensors.push_back(not_compared(is_v_ ? "v_dst" : "k_dst",
                                     {got_.size() / static_cast<int64_t>(dtype_size(job_.dtype))}));
    put_bits(e.tensors.back(), job_.dtype, expected_.data(), got_.data(), &got_);
  }

  CacheFindings findings() const {
    return find_in_cache(job_.num_rows, job_.num_heads,
                         {[this](const CacheRow& row) { return !has(row, expected_.data() + byte(row)); },
                          [this](const CacheRow& row) { return moved_to(row.row).seq >= 0; },
                          [this](const CacheMistake& m, const CacheRow& row) { return gives(m, row); },
                          [this](const CacheRow& row) { return other_clue(row); }});
  }

 private:
  bool rounds() const { return job_.dtype != case_.params.type_of_kv(is_v_); }
  std::size_t byte(const CacheRow& row) const {
    return static_cast<std::size_t>(fill_offset(job_, row.row, row.head)) * dtype_size(job_.dtype);
  }
  bool has(const CacheRow& row, const unsigned char* bytes) const {
    return std::memcmp(&got_[byte(row)], bytes,
                       static_cast<std::size_t>(job_.head_dim) * dtype_size(job_.dtype)) == 0;
  }
  RowOwner moved_to(int64_t r) const {
    return r >= 0 && r < job_.num_rows ? plan_.appended[static_cast<std::size_t>(r)] : RowOwner{-1, 0};
  }

  bool gives(const CacheMistake& m, const CacheRow& row) const {
    if (m.turn != RowTurn::kRight || (m.scale != RowScale::kRight && !rounds())) return false;
    if (m.other_tensor && case_.params.dim_of_kv(true) != case_.params.dim_of_kv(false)) return false;
    const RowOwner from = m.kept ? RowOwner{-1, 0} : moved_to(row.row - m.slots - m.blocks * job_.block_size);
    if (from.seq >= 0) return holds(m, row, from, m.head_of(row.head, job_.num_heads));
    const auto before = filled_row(job_, plan_.kv_owners[static_cast<std::size_t>(row.row)]);
    return has(row, &before[before.size() / static_cast<std::size_t>(job_.num_heads) *
                            static_cast<std::size_t>(row.head)]);
  }

  bool holds(const CacheMistake& m, const CacheRow& row, const RowOwner& from, int32_t head) const {
    const auto bytes = moved(from, head, is_v_ != m.other_tensor, m.scale);
    return has(row, bytes.data());
  }

  std::string other_clue(const CacheRow& row) const {
    for (int64_t r = 0; r < job_.num_rows; ++r) {
      for (int32_t h = 0; moved_to(r).seq >= 0 && h < job_.num_heads; ++h) {
        if (!holds({}, row, moved_to(r), h)) continue;
        return fmt::format("looks like: rows change places: {} head {} has what belongs to {} head {}",
                           place(row.row), row.head, place(r), h);
      }
    }
    const auto mine = byte(row);
    const auto bytes =
        static_cast<std::ptrdiff_t>(job_.head_dim) * static_cast<std::ptrdiff_t>(dtype_size(job_.dtype));
    for (int64_t r = 0; r < job_.num_rows && !rounds(); ++r) {
      const RowOwner own = plan_.kv_owners[static_cast<std::size_t>(row.row)], to = moved_to(r);
      const bool destination = own.seq >= 0 && to.seq == own.seq && to.pos == own.pos;
      if (plan_.kv_owners[static_cast<std::size_t>(r)].seq < 0 && !destination) continue;
      const auto before = filled_row(job_, plan_.kv_owners[static_cast<std::size_t>(r)]);
      if (has(row, before.data() + bytes * row.head))
        return fmt::format("looks like: rows change places: {} head {} has what was in {} before",
                           place(row.row), row.head, place(r));
    }
    const auto before = filled_row(job_, plan_.kv_owners[static_cast<std::size_t>(row.row)]);
    return unwritten_channels(&got_[mine], &expected_[mine], before.data() + bytes * row.head, job_.head_dim,
                              job_.dtype, is_v_ ? "V" : "K");
  }

  /// Writes what row `r` must become if it is gathered: stored * descale, rounded to the destination's type. The
  /// product of a case's numbers is exact in double and in float.
  void lay_product(int64_t r) {
    const RowOwner o = plan_.appended[static_cast<std::size_t>(r)];
    for (int32_t h = 0; o.seq >= 0 && h < job_.num_heads; ++h)
      std::ranges::copy(moved(o, h, is_v_, RowScale::kRight),
                        expected_.begin() + static_cast<std::ptrdiff_t>(byte({r, h})));
  }

  /// The bytes of a row of one head after the launch, of K or V, perhaps with another scale.
  std::vector<unsigned char> moved(const RowOwner& o, int32_t head, bool of_v, RowScale scale) const {
    const Tensor tensor = of_v ? Tensor::kV : Tensor::kK;
    const auto n = static_cast<std::size_t>(job_.head_dim);
    std::vector<unsigned char> bytes(n * dtype_size(job_.dtype));
    if (!rounds()) {
      FillJob job = job_;
      job.tensor = tensor;
      const auto all = filled_row(job, o);
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(bytes.size()) * head, bytes.size(),
                  bytes.begin());
      return bytes;
    }
    std::vector<float> row(n);
    value_row(job_.spec, tensor, static_cast<uint32_t>(o.seq), static_cast<uint32_t>(o.pos),
              static_cast<uint32_t>(head), job_.head_dim, row.data());
    const Tensor of_scale = scale != RowScale::kOtherTensor ? tensor : of_v ? Tensor::kK : Tensor::kV;
    const int32_t its_head =
        scale == RowScale::kHead0 ? 0 : (head + (scale == RowScale::kNextHead ? 1 : 0)) % job_.num_heads;
    for (int32_t c = 0; c < job_.head_dim; ++c) {
      const auto stored = static_cast<double>(stored_value(case_, tensor, row[static_cast<std::size_t>(c)]));
      const auto right = static_cast<double>(
          descale_of(case_, of_scale, o.seq, o.pos, its_head, scale == RowScale::kChannel0 ? 0 : c));
      const double by = scale == RowScale::kNone ? 1 : scale == RowScale::kInverse ? 1 / right : right;
      store_float(job_.dtype, bytes.data(), c, static_cast<float>(stored * by));
    }
    return bytes;
  }

  std::string place(int64_t r) const {
    const char* name = is_v_ ? "v_dst" : "k_dst";
    if (case_.params.gathers()) return fmt::format("{} row {}", name, r);
    return fmt::format("{} block {} row {}", name, r / job_.block_size, r % job_.block_size);
  }

  std::string whose(const RowOwner& moved) const {
    if (moved.seq < 0) return "must stay";
    if (moved.seq < static_cast<int32_t>(case_.params.seqs.size()))
      return fmt::format("seq {} pos {}", moved.seq, moved.pos);
    return "a row of a copied block that holds no key";
  }

  std::string first_difference(WorstElement& worst) const {
    const std::size_t e = dtype_size(job_.dtype);
    for (int64_t r = 0; r < job_.num_rows; ++r) {
      const RowOwner moved = plan_.appended[static_cast<std::size_t>(r)];
      for (int32_t h = 0; h < job_.num_heads; ++h) {
        if (got_.in_hole(fill_offset(job_, r, h) * static_cast<int64_t>(e))) continue;
        for (int32_t c = 0; c < job_.head_dim; ++c) {
          const int64_t i = fill_offset(job_, r, h) + c;
          const std::size_t byte = static_cast<std::size_t>(i) * e;
          if (std::memcmp(&got_[byte], &expected_[byte], e) == 0) continue;
          worst = {moved.seq,
                   moved.pos,
                   h,
                   c,
                   load_float(job_.dtype, got_.data(), i),
                   load_float(job_.dtype, expected_.data(), i),
                   0};
          return fmt::format("{} head {} channel {}: got {:.9g}, expected {:.9g} ({})", place(r), h, c,
                             worst.got, worst.expected, whose(moved));
        }
      }
    }
    return fmt::format("{}: bytes between rows differ", is_v_ ? "v_dst" : "k_dst");
  }

  const Case& case_;
  const WorkloadPlan& plan_;
  const bool is_v_;
  const HostBytes& got_;
  FillJob job_;
  std::vector<RowOwner> after_;  ///< owners of all rows after the launch
  HostBytes expected_;
};

}  // namespace

Verdict verify_move(const Workload& w, const HostOutputs& outputs) {
  const auto begin = std::chrono::steady_clock::now();
  const CaseParams& p = w.item().params;
  Verdict v;
  v.pass = true;
  v.method = "bitwise";
  const int64_t tensors = p.v_is_k_view ? 1 : 2;
  v.rows_total = v.rows = tensors * p.num_heads_kv * std::ssize(w.plan().kv_owners);
  std::array<CacheFindings, 2> found;
  for (const bool is_v : {false, true}) {
    if (is_v && p.v_is_k_view) continue;
    MoveCheck check(w, is_v, outputs);
    WorstElement worst;
    const auto wrong = check.run(worst);
    if (!wrong) continue;
    found[is_v] = check.findings();
    if (!v.pass) continue;
    v.worst = worst;
    v.fail(detector::kCacheBits, *wrong);
  }
  v.clues = cache_clues(found);
  v.reference_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return v;
}

namespace ops::kv_move {
namespace {

void expect(const Workload& w, const HostOutputs& got, const Numerics&, const Check&, int,
            ExpectedOutputs& e) {
  for (const bool is_v : {false, true}) {
    if (is_v && w.item().params.v_is_k_view) continue;
    MoveCheck check(w, is_v, got);
    WorstElement worst;
    check.run(worst);
    check.put_expected(e);
  }
}

}  // namespace

const JudgeOps kJudgeOps = {[](const Workload& w, const HostOutputs& outputs, const Numerics&, const Check&,
                               int) { return verify_move(w, outputs); },
                            expect};

}  // namespace ops::kv_move
}  // namespace attnbench
