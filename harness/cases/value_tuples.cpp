#include "harness/cases/value_tuples.h"

namespace attnbench {

TupleSet::TupleSet(const std::vector<std::size_t>& points, std::size_t size, bool full)
    : points_(points), size_(size) {
  std::vector<std::size_t> all(points.size());
  std::size_t places = 1, tuples = 0;
  for (std::size_t a = 0; a < all.size(); ++a) all[a] = a;
  for (std::size_t n = 0; n < size; ++n) places *= points.size();
  begin_.assign(places, 0);
  for_each_subset(all, size, [&](const std::vector<std::size_t>& axes) {
    begin_[place(axes)] = tuples;
    std::size_t n = 1;
    for (const std::size_t a : axes) n *= points[a];
    tuples += n;
  });
  in_.assign(tuples, full);
}

double TupleSet::count(const std::vector<std::size_t>& points, std::size_t size) {
  // The sum over all sets of axes is an elementary symmetric polynomial of the numbers of points.
  std::vector<double> sums(size + 1, 0.0);
  sums[0] = 1;
  for (const std::size_t n : points) {
    for (std::size_t k = size; k > 0; --k) sums[k] += sums[k - 1] * static_cast<double>(n);
  }
  return sums[size];
}

}  // namespace attnbench
