// What the host hands to the device code.
#pragma once

#include <cstdint>

#include "kernels/contract/attention_params.h"
#include "kernels/cuda/common/kv_rows.h"
#include "kernels/cuda/sm90_decode/partition.cuh"

namespace attnbench::sm90_decode {

using hopper::kFar;
using hopper::KvRows;

/// By-value parameter of the kernel.
///
/// Words: G = Hq / Hkv query heads share a KV head. The *rows* of a sequence and KV head are its query tokens
/// times G: row r is token r / G, head kv_head * G + r % G.
struct alignas(64) KernelParams {
  // First what a block's first instructions need, in as few lines of the constant cache as may be: each that
  // is missing costs some hundred cycles.

  // Where a sequence's queries, keys, and keys' rows begin and end, an entry per sequence, chosen by the host
  // so that the device need not ask which source it is. k_len is k_end less k_begin.
  const int32_t* cu_seqlens_q;  ///< of `attention`
  const int32_t* k_end;
  const int32_t* k_begin;      ///< null: zeros
  const int32_t* kv_row;       ///< null: zeros
  const int32_t* kv_block;     ///< null: block_step times the sequence's number
  int32_t block_step;          ///< 1: contiguous caches, 0: others
  int32_t batch;               ///< of `attention`
  const int32_t* block_table;  ///< null where KV is not paged
  int64_t block_table_stride;

  // A guess of the partition, that every sequence has max_seqlen_q queries and max_seqlen_k keys: a block
  // asks for its first page numbers together with the lengths, and where the guess is right it begins with
  // the first tile at once. A wrong guess costs time alone.
  Divisor by_guessed_sequence_units, by_block_size;
  int32_t guessed_sequence_units;
  int32_t guessed_first_tile;
  Partition guessed_partition;
  int32_t guess_is_usable;             ///< 0: the guessed part does not begin with a tile
  int32_t max_seqlen_q, max_seqlen_k;  ///< of `attention`
  int32_t block_size;                  ///< of `attention`
  int32_t box_rows;                    ///< keys per copy: 16, 32 or 64, a divisor of the block size
  KvRows k_rows;
  KvRows v_rows;

  int32_t group;             ///< G
  int32_t max_rows;          ///< max_seqlen_q * G
  int32_t parts;             ///< parts per KV head (partition.cuh); the grid is (num_heads_kv, parts)
  int32_t min_units;         ///< least units of a part
  int32_t segment_cost;      ///< units that beginning a sequence counts as
  int32_t unit_shift;        ///< a unit is 2^unit_shift tiles
  int32_t split_every_unit;  ///< 1: every unit is a split of its own (batch invariant); 0: a part's units
                             ///< together
  int32_t partials;          ///< places for partial results per KV head
  int32_t most_keys;         ///< of a sequence: longer ones would need more places for partial results
  int32_t window_left;       ///< of `attention`, at most kFar
  Divisor by_group, by_parts;

  float tanh_factor;  ///< softcap: 2 log2(e) softmax_scale / softcap, so that tanh(x) = 1 - 2 / (2^(factor s)
                      ///< + 1); 0: no softcap
  float score_factor;  ///< from a raw score (softcap: from its tanh) to a logit in base 2

  // Partial results of split sequences, [kv_head][partials][max_rows]: O normalised, [head_dim] each, and
  // the base-2 logarithm of the sum of weights. Counters, [kv_head][partials], by the number of a sequence's
  // first partial result: how many of its splits are done; zero between launches.
  float* partial_out;
  float* partial_lse;
  uint32_t* counters;

  // Where the block of a sequence's first split waits for the others, [kv_head][parts][max_rows]: states
  // (handover.cuh), head_dim channels of O and head_dim / 4 copies of the LSE. Absent between launches.
  float* state_out;
  float* state_lse;

  AttentionParams attention;

  uint32_t* steps;  ///< of all blocks (pace.cuh), zero between launches
};

}  // namespace attnbench::sm90_decode
