#include "harness/cases/axis_rows.h"

#include <algorithm>
#include <set>

namespace attnbench {
namespace {

/// Random rows tried for values that their needs do not lead to, and to find a first legal row.
constexpr int kDrawnRows = 100;
/// A table with at most this many rows is searched row by row.
constexpr std::size_t kFewRows = 4096;
/// Keeps these draws independent of the draws of values, lengths and tables.
constexpr uint32_t kStream = 0x726f7773;  // "rows"

AxisRow with(AxisRow row, const std::vector<AxisValue>& values) {
  for (const AxisValue& v : values) row[v.axis] = v.point;
  return row;
}

bool holds(const AxisRow& row, const ValueTuple& values) {
  return std::ranges::all_of(values, [&](const AxisValue& v) { return row[v.axis] == v.point; });
}

bool has_axis(const ValueTuple& values, std::size_t axis) {
  return std::ranges::any_of(values, [&](const AxisValue& v) { return v.axis == axis; });
}

}  // namespace

std::size_t Draws::below(std::size_t n) {
  const uint64_t r = philox4x32(next_++, 0, 0, kStream, seed_).x[0];
  return static_cast<std::size_t>((r * n) >> 32);
}

RowFinder::RowFinder(const AxisTable& table, Draws& draws) : table_(table), draws_(draws) {
  std::size_t values = 0, rows = 1;
  for (const std::size_t n : table_.points) {
    first_.push_back(values);
    values += n;
    rows = std::min(rows * n, kFewRows + 1);
  }
  exact_ = rows <= kFewRows;
  needs_.assign(values, std::nullopt);
  find_plain();
  find_needs();
}

bool RowFinder::all_live(const AxisRow& row, const ValueTuple& values) const {
  return std::ranges::all_of(values, [&](const AxisValue& v) { return table_.live(row, v.axis); });
}

bool RowFinder::works(const AxisRow& row, const ValueTuple& values) const {
  return holds(row, values) && table_.legal(row) && all_live(row, values);
}

/// A random row: each axis keeps its point of plain_ with probability 1/2, else any point is drawn.
AxisRow RowFinder::drawn() {
  AxisRow row = plain_;
  for (std::size_t a = 0; a < row.size(); ++a) {
    if (draws_.below(2) == 0) row[a] = draws_.below(table_.points[a]);
  }
  return row;
}

/// Sets plain_ to the row of first points if it is legal, else to a legal row near it.
void RowFinder::find_plain() {
  const AxisRow first(table_.points.size(), 0);
  plain_ = first;
  for (std::size_t a = 0; a < first.size(); ++a) {
    for (std::size_t i = 0; i < table_.points[a] && !table_.legal(plain_); ++i)
      plain_ = with(first, {{a, i}});
  }
  if (table_.legal(plain_)) return;
  plain_ = first;
  for (int n = 0; n < kDrawnRows; ++n) {
    const AxisRow row = drawn();
    if (!table_.legal(row)) continue;
    plain_ = row;
    return;
  }
}

/// What a value that was reached needs, and the value itself.
RowFinder::Needs RowFinder::chain(const AxisValue& v) const {
  Needs needs = *needs_of(v);
  needs.push_back(v);
  return needs;
}

bool RowFinder::reach(const AxisValue& v, const Needs& needs) {
  if (needs_of(v).has_value() || !works(with(with(plain_, needs), {v}), {v})) return false;
  needs_[first_[v.axis] + v.point] = needs;
  return true;
}

/// Finds the needs of each value, starting from the plainest row. A value that works there needs nothing.
/// Another value needs one that was reached before, with its needs, and so on until no further value is
/// reached. For the values that remain, two reached values are tried together.
void RowFinder::find_needs() {
  for_each_value([&](const AxisValue& v) { reach(v, {}); });
  for (bool more = true; more;) {
    more = false;
    for_each_value([&](const AxisValue& v) {
      for_each_value([&](const AxisValue& other) {
        if (other.axis != v.axis && needs_of(other) && reach(v, chain(other))) more = true;
      });
    });
  }
  for_each_value([&](const AxisValue& v) {
    for_each_value([&](const AxisValue& second) {
      if (second.axis == v.axis || !needs_of(second) || needs_of(v)) return;
      for_each_value([&](const AxisValue& third) {
        if (third.axis == v.axis || third.axis == second.axis || !needs_of(third) || needs_of(v)) return;
        Needs both = chain(second);
        const Needs more = chain(third);
        both.insert(both.end(), more.begin(), more.end());
        both.push_back(second);
        reach(v, both);
      });
    });
  });
}

/// Tries rows with the needs of all values, then of some, in which the other values may make no difference.
/// Needs may contradict each other, and the last one wins; therefore several orders are tried.
bool RowFinder::attempt_needs(const ValueTuple& values, const Attempt& attempt) const {
  for (std::size_t some = std::size_t{1} << values.size(); some-- > 0;) {
    for (std::size_t begin = 0; begin < std::max<std::size_t>(values.size(), 1); ++begin) {
      AxisRow row = plain_;
      for (std::size_t n = 0; n < values.size(); ++n) {
        const std::size_t at = (begin + n) % values.size();
        if ((some >> at & 1) != 0 && needs_of(values[at])) row = with(row, *needs_of(values[at]));
      }
      if (attempt(with(row, values))) return true;
    }
  }
  return false;
}

/// The same with one value of another axis and its needs in addition.
bool RowFinder::attempt_third_values(const ValueTuple& values, const Attempt& attempt) const {
  bool done = false;
  for_each_value([&](const AxisValue& third) {
    if (done || has_axis(values, third.axis) || !needs_of(third)) return;
    AxisRow last = plain_, first = with(plain_, *needs_of(third));
    for (const AxisValue& v : values) {
      if (!needs_of(v)) continue;
      last = with(last, *needs_of(v));
      first = with(first, *needs_of(v));
    }
    done = attempt(with(with(with(last, *needs_of(third)), {third}), values)) ||
           attempt(with(with(first, {third}), values));
  });
  return done;
}

bool RowFinder::attempt_drawn(const ValueTuple& values, const Attempt& attempt) {
  for (int n = 0; n < 2 * kDrawnRows; ++n) {
    AxisRow row = drawn();
    for (const AxisValue& v : values) {
      if (n < kDrawnRows && needs_of(v)) row = with(row, *needs_of(v));
    }
    if (attempt(with(row, values))) return true;
  }
  return false;
}

const std::vector<AxisRow>& RowFinder::legal_rows() {
  if (legal_rows_) return *legal_rows_;
  legal_rows_.emplace();
  AxisRow row(table_.points.size(), 0);
  for (bool more = exact_; more;) {
    if (table_.legal(row)) legal_rows_->push_back(row);
    more = false;
    for (std::size_t a = row.size(); a-- > 0 && !more;) {
      more = ++row[a] < table_.points[a];
      if (!more) row[a] = 0;
    }
  }
  live_in_.resize(legal_rows_->size());
  return *legal_rows_;
}

RowFinder::Found RowFinder::among_legal_rows(const ValueTuple& values, bool legal_is_enough) {
  Found found;
  const std::vector<AxisRow>& rows = legal_rows();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (!holds(rows[r], values)) continue;
    found.legal = true;
    std::vector<bool>& live = live_in_[r];
    for (std::size_t a = live.size(); !legal_is_enough && a < rows[r].size(); ++a)
      live.push_back(table_.live(rows[r], a));
    if (!legal_is_enough && !std::ranges::all_of(values, [&](const AxisValue& v) { return live[v.axis]; })) {
      continue;
    }
    found.row = rows[r];
    break;
  }
  return found;
}

RowFinder::Found RowFinder::holding(const ValueTuple& values, bool legal_is_enough) {
  Found found;
  std::set<AxisRow> tried;
  const Attempt attempt = [&](const AxisRow& row) {
    if (!tried.insert(row).second || !table_.legal(row)) return false;
    found.legal = true;
    if (!legal_is_enough && !all_live(row, values)) return false;
    found.row = row;
    return true;
  };
  if (attempt_needs(values, attempt)) return found;
  if (exact_) return among_legal_rows(values, legal_is_enough);
  if (!attempt_third_values(values, attempt)) attempt_drawn(values, attempt);
  return found;
}

}  // namespace attnbench
