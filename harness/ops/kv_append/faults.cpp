// Faults of appending to a paged cache, and of the rotary embedding of appended keys.
#include <algorithm>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

constexpr const char* kAppending =
    "{op: kv_append, dtype: bf16, heads: 2, head_dim: 64, block_size: 16, padding_tokens: 3, batch: "
    "q5s21_q1s40_q16s16}";
constexpr const char* kAnySlots =
    "{op: kv_append, dtype: bf16, heads: 2, head_dim: 64, block_size: 16, slots: arbitrary, batch: "
    "q5s21_q1s40_q16s16}";
constexpr const char* kNeox =
    "{op: kv_append, dtype: bf16, heads: 2, head_dim: 64, block_size: 16, rotary: neox, padding_tokens: 3, "
    "batch: "
    "q5s21_q1s40_q16s16}";
constexpr const char* kInterleaved =
    "{op: kv_append, dtype: bf16, heads: 2, head_dim: 64, block_size: 16, rotary: interleaved, batch: "
    "q5s21_q1s40_q16s16}";

Tamper::Fault with_slots(const std::function<void(const KvAppendParams&, std::vector<int64_t>&)>& change) {
  return with_append([change](Tamper& t, KvAppendParams& p) {
    auto slots = t.read<int64_t>(p.slot_mapping, p.num_tokens);
    change(p, slots);
    p.slot_mapping = t.put(slots);
  });
}

/// kv_append with changed positions of its tokens.
Tamper::Fault with_positions(
    const std::function<void(const std::vector<int64_t>& slots, std::vector<int32_t>&)>& change) {
  return with_append([change](Tamper& t, KvAppendParams& p) {
    if (p.positions == nullptr) return;
    auto positions = t.read<int32_t>(p.positions, p.num_tokens);
    change(t.read<int64_t>(p.slot_mapping, p.num_tokens), positions);
    p.positions = t.put(positions);
  });
}

std::vector<Fault> appended_to_wrong_slots() {
  return {{"appended_to_batch_row_0",
           "all tokens go behind those of sequence 0",
           {kAppending},
           with_slots([](const KvAppendParams&, std::vector<int64_t>& slots) {
             int64_t next = -1;
             for (int64_t& s : slots) {
               if (s < 0) continue;
               next = next < 0 ? s : next + 1;
               s = next;
             }
           }),
           {},
           "rows change places"},
          {"slots_of_a_block_follow_each_other",
           "tokens go behind the first of each 8 tokens, whatever their own slots are",
           {kAnySlots},
           with_slots([](const KvAppendParams& p, std::vector<int64_t>& slots) {
             for (std::size_t t = 0; t < slots.size(); ++t) {
               const int64_t first = slots[t - t % 8];
               slots[t] = (first + static_cast<int64_t>(t % 8)) % (int64_t{p.num_blocks} * p.block_size);
             }
           }),
           {"slots: arbitrary"},
           "rows change places"},
          {"position_off_by_one",
           "tokens land one slot later",
           {kAppending},
           with_slots([](const KvAppendParams& p, std::vector<int64_t>& slots) {
             for (int64_t& s : slots) {
               if (s >= 0) s = (s + 1) % (int64_t{p.num_blocks} * p.block_size);
             }
           }),
           {},
           "written to slot s + 1"},
          {"slot_of_another_block_size",
           "slots are taken apart with half the block size",
           {kAppending},
           with_slots([](const KvAppendParams& p, std::vector<int64_t>& slots) {
             const int64_t half = p.block_size / 2;
             for (int64_t& s : slots) {
               if (s >= 0) s = (s / half * p.block_size + s % half) % (int64_t{p.num_blocks} * p.block_size);
             }
           }),
           {"block_size"},
           "rows change places"},
          {"padding_token_written",
           "slot -1 is taken as the last slot of the pool",
           {kAppending},
           with_slots([](const KvAppendParams& p, std::vector<int64_t>& slots) {
             for (int64_t& s : slots) {
               if (s < 0) s = int64_t{p.num_blocks} * p.block_size - 1;
             }
           }),
           {"padding_tokens"},
           "by a padding token"},
          {"last_token_lost",
           "the last new token is not written",
           {kAppending},
           with_slots([](const KvAppendParams&, std::vector<int64_t>& slots) {
             for (std::size_t i = slots.size(); i-- > 0;) {
               if (slots[i] < 0) continue;
               slots[i] = -1;
               break;
             }
           }),
           {"op: kv_append"},
           "are not written"}};
}

std::vector<Fault> wrong_rows_appended() {
  return {{"heads_swapped",
           "the two heads are exchanged",
           {kAppending},
           with_append([](Tamper&, KvAppendParams& p) {
             if (p.num_heads_kv != 2) return;
             p.key = static_cast<const char*>(p.key) +
                     p.key_stride_head * static_cast<int64_t>(dtype_size(p.dtype_in));
             p.key_stride_head = -p.key_stride_head;
           }),
           {},
           "belongs to head h + 1"},
          {"value_written_as_key",
           "both caches hold keys",
           {kAppending},
           with_append([](Tamper&, KvAppendParams& p) {
             p.value = p.key;
             p.value_stride_token = p.key_stride_token;
             p.value_stride_head = p.key_stride_head;
           }),
           {},
           "belongs to the other tensor"},
          {"one_token_too_many",
           "what stands behind the last slot is taken as another token's",
           {kAppending},
           with_append([](Tamper&, KvAppendParams& p) { ++p.num_tokens; }),
           {},
           "one token too many"},
          {"one_token_past_capacity",
           "one row is written past the end of the pool",
           {kAppending},
           afterwards<&OpParams::kv_append>([](Tamper& t, const KvAppendParams& p) {
             const auto e = static_cast<int64_t>(dtype_size(p.dtype_k));
             const char* end =
                 static_cast<const char*>(p.k_cache) + int64_t{p.num_blocks} * p.k_stride_block * e;
             t.write(end, std::vector<unsigned char>(static_cast<std::size_t>(p.head_dim * e), 0x3f));
           })}};
}

}  // namespace

FaultClass append_faults() { return {"append", joined({appended_to_wrong_slots(), wrong_rows_appended()})}; }

FaultClass rotary_faults() {
  const auto other_pairs = with_append([](Tamper&, KvAppendParams& p) { p.rotary.interleaved ^= 1; });
  return {"rotary",
          {{"neox_for_interleaved",
            "halves pair up where neighbours should",
            {kInterleaved},
            other_pairs,
            {"rotary: interleaved"},
            "in other pairs"},
           {"interleaved_for_neox",
            "neighbours pair up where halves should",
            {kNeox},
            other_pairs,
            {"rotary: neox"},
            "in other pairs"},
           {"position_without_cache_length",
            "positions count from the first new token",
            {kNeox},
            with_positions([](const std::vector<int64_t>& slots, std::vector<int32_t>& positions) {
              const std::vector<int32_t> right = positions;
              for (std::size_t i = 0; i < right.size(); ++i) {
                if (slots[i] < 0) continue;
                const bool next = i > 0 && slots[i - 1] >= 0 && right[i] == right[i - 1] + 1;
                positions[i] = next ? positions[i - 1] + 1 : 0;
              }
            }),
            {},
            "count from the first new token"},
           {"rotary_position_off_by_one",
            "each key is turned by the angle of the position before it",
            {kNeox},
            with_positions([](const std::vector<int64_t>& slots, std::vector<int32_t>& positions) {
              for (std::size_t i = 0; i < positions.size(); ++i) {
                if (slots[i] >= 0) positions[i] = std::max(0, positions[i] - 1);
              }
            }),
            {},
            "at the position before"},
           {"rotation_inverted",
            "the sine has the other sign",
            {kNeox},
            with_append([](Tamper& t, KvAppendParams& p) {
              auto sine = t.read<float>(p.rotary.sin, int64_t{p.rotary.positions} * (p.rotary.dim / 2));
              for (float& x : sine) x = -x;
              p.rotary.sin = t.put(sine);
            }),
            {},
            "the other way"},
           {"rotation_ignored",
            "keys are appended as they come",
            {kNeox},
            with_append([](Tamper&, KvAppendParams& p) {
              p.features &= ~uint64_t{kRotary};
              p.rotary = {};
              p.positions = nullptr;
            }),
            {"rotary: neox"},
            "are not rotated"}}};
}

}  // namespace attnbench
