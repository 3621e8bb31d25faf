// Judges kv_move: every byte of the destination is known before the launch.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "harness/ops/judge_ops.h"

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
    const bool rounds = job_.dtype != case_.params.type_of_kv(is_v_);
    for (std::size_t r = 0; r < after_.size() && !rounds; ++r) {
      if (plan_.appended[r].seq >= 0) after_[r] = plan_.appended[r];
    }
    job_.base = expected_.data();
    job_.owners = after_.data();
    fill_host(job_, expected_.holes());
    if (rounds) {
#pragma omp parallel for schedule(static)
      for (int64_t r = 0; r < job_.num_rows; ++r) lay_product(r);
    }
    if (got_ == expected_) return std::nullopt;
    return first_difference(worst);
  }

 private:
  /// Writes what row `r` must become if it is gathered: stored * descale, rounded to the destination's type. The
  /// product of a case's numbers is exact in double and in float.
  void lay_product(int64_t r) {
    const RowOwner o = plan_.appended[static_cast<std::size_t>(r)];
    if (o.seq < 0) return;
    const Tensor tensor = is_v_ ? Tensor::kV : Tensor::kK;
    std::vector<float> row(static_cast<std::size_t>(job_.head_dim));
    for (int32_t h = 0; h < job_.num_heads; ++h) {
      value_row(job_.spec, tensor, static_cast<uint32_t>(o.seq), static_cast<uint32_t>(o.pos),
                static_cast<uint32_t>(h), job_.head_dim, row.data());
      for (int32_t c = 0; c < job_.head_dim; ++c) {
        const auto stored =
            static_cast<double>(stored_value(case_, tensor, row[static_cast<std::size_t>(c)]));
        const double product = stored * static_cast<double>(descale_of(case_, tensor, o.seq, o.pos, h, c));
        store_float(job_.dtype, expected_.data(), fill_offset(job_, r, h) + c, static_cast<float>(product));
      }
    }
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
  for (const bool is_v : {false, true}) {
    if (is_v && p.v_is_k_view) continue;
    if (const auto wrong = MoveCheck(w, is_v, outputs).run(v.worst)) {
      v.fail(detector::kCacheBits, *wrong);
      break;
    }
  }
  v.reference_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return v;
}

const JudgeOps ops::kv_move::kJudgeOps = {[](const Workload& w, const HostOutputs& outputs, const Numerics&,
                                             const Check&, int) { return verify_move(w, outputs); }};

}  // namespace attnbench
