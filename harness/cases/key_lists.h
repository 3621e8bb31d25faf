// Lists of keys, one for each query and KV head, in sparse attention by indices. This one function of the seed makes the
// tensors of launches (ops/attention/tensors_key_lists.h), the inputs of the reference and the costs.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/cases/visible_keys.h"

namespace attnbench {

/// Which list is meant: that of query `i` of sequence `seq`.
struct ListOwner {
  uint64_t seed;
  int32_t seq, i;
};

/// Entries that count in the lists of a query: topk_length of the contract.
int32_t key_list_length(const CaseParams& p, const ListOwner& owner);

/// The entries that count, of KV head `kv_head`: different keys of `visible` in random order, and -1 between them.
/// Some lists have no key.
std::vector<int32_t> key_list_of(const CaseParams& p, const ListOwner& owner, int32_t kv_head,
                                 const KeyRange& visible);

}  // namespace attnbench
