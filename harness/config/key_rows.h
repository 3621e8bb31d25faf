// The parts of the key table, which keys.cpp joins, and what their rows share. For those files only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/key_kinds.h"
#include "harness/config/keys.h"

namespace attnbench::key_rows {

using P = const CaseParams&;
using C = CaseParams;
using Json = SweepKey::Json;
using Rows = std::vector<SweepKey>;

inline constexpr uint64_t kNothing = 0;  ///< no feature

inline bool is_attention(P p) { return p.does().forward(); }
inline bool is_append(P p) { return p.does().appends; }
inline bool is_merge(P p) { return p.does().merges; }
inline bool is_backward(P p) { return p.does().gradients; }
inline bool is_move(P p) { return p.does().moves; }
/// Attention or its gradients.
inline bool attends(P p) { return p.does().attends; }
inline bool has_kv(P p) { return !is_merge(p); }
/// Whether a launch writes an LSE.
inline bool has_lse(P p) { return is_attention(p) || is_merge(p); }
/// K and V that may be quantised, rotated or lie in a cache.
inline bool is_served(P p) { return has_kv(p) && !is_backward(p); }
inline bool is_paged(P p) { return has_kv(p) && p.kv == KvSource::kPaged; }
inline bool is_contiguous(P p) { return has_kv(p) && p.kv == KvSource::kContiguous; }
inline bool is_packed(P p) { return is_served(p) && p.kv == KvSource::kPacked; }
/// Ops that may turn keys.
inline bool may_turn(P p) { return is_attention(p) || is_append(p); }
inline bool turns(P p) { return may_turn(p) && p.rotary != Rotary::kNone; }

/// A feature that the case needs if the condition holds.
inline auto feature(uint64_t bit, bool (*holds)(P)) {
  return [=](P p) { return holds(p) ? bit : 0; };
}

/// A label that the id has if the condition holds.
inline auto label(const char* text, bool (*holds)(P)) {
  return [=](P p) { return std::string(holds(p) ? text : ""); };
}

// key_rows_tensors.cpp
Rows memory_keys();
Rows shape_keys();
Rows descale_keys();
// key_rows_attention.cpp
Rows mask_keys();
Rows score_keys();
Rows call_keys();
// key_rows_append.cpp
Rows append_keys();
// harness/ops/*/keys.cpp
Rows kv_append_keys();
Rows merge_keys();
Rows move_keys();

}  // namespace attnbench::key_rows
