// Random legal cases of one op, small, with corners likely. A pure function of the seed and of what learn()
// was told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/fuzz/batches.h"
#include "harness/fuzz/draft.h"
#include "harness/fuzz/random.h"

namespace attnbench {

struct FuzzCase {
  Draft draft;
  BatchStyle style = BatchStyle::kDecode;
  Case item;
};

class Generator {
 public:
  /// `size`: share of the largest FLOP and bytes that a case may cost, for devices that take longer.
  Generator(Op op, uint64_t seed, double size = 1);

  /// The next legal case. Throws std::logic_error where none can be drawn.
  FuzzCase next();

  /// Whether the kernel took the case. A value that comes with refusals only is soon drawn rarely, so that a
  /// kernel of few features is not asked in vain most of the time.
  void learn(const FuzzCase& drawn, bool taken);

  /// "block_size=64" for each key that is not default, and the sort of batch.
  static std::vector<std::string> features_of(const FuzzCase& drawn);

 private:
  struct Choice {
    std::string value;
    int64_t offered = 0, taken = 0;
    double score() const;
  };
  struct Menu {
    std::string key;
    std::vector<Choice> choices;
    std::size_t plain = 0;  ///< the default
    double share = 0;       ///< of drafts that leave the default; 0: as bold as the draft is
  };

  void add_menu(const std::string& key, const std::vector<std::string>& values, const std::string& plain);
  std::size_t choose(const Menu& menu, double boldness);
  Choice& choice_of(Menu& menu, const FuzzCase& drawn) const;
  FuzzCase draw();
  void complete(Draft& draft);
  bool make_legal(FuzzCase& drawn);
  bool follow_advice(const std::string& why, Draft& draft);
  bool drop_a_named_key(const std::string& why, Draft& draft);
  bool make_small(FuzzCase& drawn);
  void drop_idle_keys(FuzzCase& drawn);

  Op op_;
  double size_;
  Random random_;
  DraftReader reader_;
  std::vector<Menu> menus_;
};

}  // namespace attnbench
