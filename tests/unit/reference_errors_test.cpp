// What attend refuses, and what happens to exceptions thrown on its threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/reference.h"

namespace attnbench::reference {
namespace {

// All inputs are 1. Throws in the call that `fails` names, if any.
class Ones : public Inputs {
 public:
  explicit Ones(std::string fails = "") : fails_(std::move(fails)) {}
  void load_q(int, int, int begin, int end, double* out) const override { write("q", begin, end, out); }
  void load_k(int, int, int begin, int end, double* out) const override { write("k", begin, end, out); }
  void load_v(int, int, int begin, int end, double* out) const override { write("v", begin, end, out); }

 private:
  void write(const std::string& name, int begin, int end, double* out) const {
    if (fails_ == name) throw std::runtime_error("no " + name);
    std::fill_n(out, (end - begin) * 2, 1.0);
  }
  std::string fails_;
};

Problem small() {
  Problem p;
  p.head_dim = 2;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.q_lens = {3, 5};
  p.k_lens = {4, 6};
  return p;
}

void ignore(const RowBlock&) {}

void expect_refused(const Problem& problem, const std::vector<RowId>& rows, int num_threads = 1) {
  EXPECT_THROW(attend(problem, Ones(), rows, num_threads, ignore), std::invalid_argument);
}

TEST(ReferenceErrors, RowsOutsideTheProblem) {
  for (const RowId row :
       {RowId{-1, 0, 0}, {2, 0, 0}, {0, -1, 0}, {0, 3, 0}, {1, 5, 0}, {0, 0, -1}, {0, 0, 4}}) {
    expect_refused(small(), {{0, 0, 0}, row});
  }
  EXPECT_NO_THROW(attend(small(), Ones(), all_rows(small()), 1, ignore));
}

TEST(ReferenceErrors, Contradictions) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<void (*)(Problem&)> changes = {
      [](Problem& p) { p.head_dim = 0; },      [](Problem& p) { p.num_heads_kv = 3; },
      [](Problem& p) { p.num_heads_kv = 0; },  [](Problem& p) { p.num_heads_q = 0; },
      [](Problem& p) { p.q_lens = {3}; },      [](Problem& p) { p.q_lens = {-1, 5}; },
      [](Problem& p) { p.k_lens = {4, -6}; },  [](Problem& p) { p.softcap = -1.0; },
      [](Problem& p) { p.head_dim_v = -1; },   [](Problem& p) { p.p_dropout = 1.0f; },
      [](Problem& p) { p.p_dropout = -0.1f; }, [](Problem& p) { p.k_ends = {4}; },
  };
  for (const auto& change : changes) {
    Problem p = small();
    change(p);
    expect_refused(p, {});
    EXPECT_THROW(all_rows(p), std::invalid_argument);
  }
  Problem p = small();
  p.softmax_scale = nan;
  expect_refused(p, {});
  expect_refused(small(), {}, -1);
}

// 4 heads and 2 sequences: 4 or 8 slopes, 4 sinks.
TEST(ReferenceErrors, SlopesAndSinks) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (size_t count : {1, 2, 3, 4, 5, 6, 8, 12}) {
    Problem slopes = small();
    slopes.alibi_slopes.assign(count, 0.5);
    Problem sinks = small();
    sinks.sinks.assign(count, 0.5);
    const auto run = [](const Problem& p) { attend(p, Ones(), all_rows(p), 1, ignore); };
    if (count == 4 || count == 8) {
      EXPECT_NO_THROW(run(slopes));
    } else {
      expect_refused(slopes, {});
    }
    if (count == 4) {
      EXPECT_NO_THROW(run(sinks));
    } else {
      expect_refused(sinks, {});
    }
  }
  for (double bad : {kInf, -kInf, kNan}) {
    Problem p = small();
    p.alibi_slopes = {0.5, 0.5, 0.5, bad};
    expect_refused(p, {});
    p.alibi_slopes.clear();
    p.sinks = {0.5, 0.5, 0.5, bad};
    if (bad == -kInf) {
      EXPECT_NO_THROW(attend(p, Ones(), all_rows(p), 1, ignore));
    } else {
      expect_refused(p, {});
    }
  }
}

TEST(ReferenceErrors, NoRowsNoCalls) {
  int calls = 0;
  attend(small(), Ones("k"), {}, 2, [&](const RowBlock&) { ++calls; });
  Problem none = small();
  none.q_lens.clear();
  none.k_lens.clear();
  attend(none, Ones("k"), all_rows(none), 2, [&](const RowBlock&) { ++calls; });
  EXPECT_EQ(calls, 0);
}

// Rows that see no key need no inputs.
TEST(ReferenceErrors, EmptyRowsLoadNothing) {
  Problem p = small();
  p.k_lens = {0, 0};
  for (const char* fails : {"q", "k", "v"}) EXPECT_NO_THROW(attend(p, Ones(fails), all_rows(p), 2, ignore));
}

TEST(ReferenceErrors, ExceptionsReachTheCaller) {
  for (int num_threads : {1, 2, 4}) {
    for (const std::string fails : {"q", "k", "v"}) {
      try {
        attend(small(), Ones(fails), all_rows(small()), num_threads, ignore);
        ADD_FAILURE() << "no exception from load_" << fails;
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), "no " + fails);
      }
    }
    std::atomic<int> calls = 0;
    const auto failing = [&](const RowBlock&) {
      ++calls;
      throw std::domain_error("sink");
    };
    EXPECT_THROW(attend(small(), Ones(), all_rows(small()), num_threads, failing), std::domain_error);
    EXPECT_LE(calls, num_threads);  // the other threads start no further tile
  }
}

}  // namespace
}  // namespace attnbench::reference
