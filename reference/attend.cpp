#include <omp.h>

#include <stdexcept>

#include "reference/check.h"
#include "reference/parallel.h"
#include "reference/plan.h"
#include "reference/reference.h"
#include "reference/tile.h"

namespace attnbench::reference {

void Inputs::load_qv(int, int, int, int, double*) const {
  throw std::logic_error("reference: these inputs have no qv");
}

void attend(const Problem& problem, const Inputs& inputs, std::span<const RowId> rows, int num_threads,
            const RowSink& sink) {
  check(problem);
  check(problem, rows);
  require(num_threads >= 0, "num_threads must not be negative");
  const int threads = num_threads > 0 ? num_threads : omp_get_max_threads();
  const Plan plan = make_plan(problem, rows, threads);
  for_each_item(
      threads, static_cast<int64_t>(plan.tiles.size()), [&] { return TileComputer(problem, inputs); },
      [&](TileComputer& computer, int64_t i) { sink(computer.compute(plan, plan.tiles[i])); });
}

std::vector<RowId> all_rows(const Problem& problem) {
  check(problem);
  std::vector<RowId> rows;
  for (int seq = 0; seq < static_cast<int>(problem.q_lens.size()); ++seq) {
    for (int pos = 0; pos < problem.q_lens[seq]; ++pos) {
      for (int head = 0; head < problem.num_heads_q; ++head) rows.push_back({seq, pos, head});
    }
  }
  return rows;
}

}  // namespace attnbench::reference
