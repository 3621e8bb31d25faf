// Random legal cases of one op: small, with likely corners. They depend only on the seed and on the calls of
// learn().
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
  /// `size` is a factor of the most FLOP and bytes that a case may cost, for slower devices.
  Generator(Op op, uint64_t seed, double size = 1);

  /// The next legal case. Throws std::logic_error if none is found.
  FuzzCase next();

  /// Notes whether the kernel took the case. A value that was only in refused cases is drawn less often, so
  /// that a kernel with few features does not refuse most cases.
  void learn(const FuzzCase& drawn, bool taken);

  /// "block_size=64" for each key that is not at its default, and the kind of batch.
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
    std::size_t plain = 0;  ///< index of the default
    double share = 0;       ///< share of drafts that leave the default; 0: the draft's boldness
  };

  void add_menu(const std::string& key, const std::vector<std::string>& values, const std::string& plain);
  std::size_t choose(const Menu& menu, double boldness);
  Choice& choice_of(Menu& menu, const FuzzCase& drawn) const;
  FuzzCase draw();
  void complete(Draft& draft);
  static bool drop_a_large_number(Draft& draft);
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
