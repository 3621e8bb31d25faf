// What the host hands to the device code, and the words of this folder.
//
// Words: G = Hq / Hkv query heads share a KV head.
//   rows         of a sequence and KV head: its query tokens times G. Row r is token r / G, head
//                kv_head * G + r % G.
//   row tile     16 rows, as many as one product has
//   tile, unit, part, segment, split    pieces of the work: partition.cuh
//   item         a segment, as the producer publishes it to the consumers (shape.cuh)
//   guess        the host's assumption that every sequence has max_seqlen_q queries and max_seqlen_k keys
//   page         a block of a paged cache by its number in the sequence, from 0 on
//   box          the keys that one copy brings: box_rows of them, at most a tile
//   slot         a buffer of the ring of K and V tiles; a *stage* is one of the ring of queries and items
//   state        a partial result on its way to the block that merges, *place* where it lies: handover.cuh
//   16-byte unit 16 bytes of a row in shared memory: 8 channels of 16 bits. It is no unit of work.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/contract/attention_params.h"
#include "kernels/cuda/common/kv_rows.h"
#include "kernels/cuda/common/partition.cuh"

namespace attnbench::sm90_decode {

using hopper::kFar;
using hopper::kPartialStep;
using hopper::KvRows;
using hopper::make_partition;
using hopper::partial_of;
using hopper::Partition;
using hopper::Segment;
using hopper::segment_of;
using hopper::sequence_units;
using hopper::Splits;
using hopper::splits_of;
using hopper::TileRange;
using hopper::tiles_of_keys;
using hopper::units_of_tiles;

/// Splits of a row whose loads a warp has in flight while it merges them, where registers allow.
ATTNBENCH_HD constexpr int splits_at_once(int head_dim) { return head_dim == 256 ? 8 : 16; }

/// By-value parameter of the kernel.
struct alignas(64) KernelParams {
  // The fields that a block's first instructions need come first, in as few lines of the constant cache as
  // possible. Each line that misses costs some hundred cycles.

  // Where a sequence's queries, keys, and keys' rows begin and end, an entry per sequence. The host chooses
  // the arrays, so that the device does not depend on the layout of KV. k_len is k_end - k_begin.
  const int32_t* cu_seqlens_q;  ///< as in `attention`
  const int32_t* k_end;
  const int32_t* k_begin;      ///< null: zeros
  const int32_t* kv_row;       ///< null: zeros
  const int32_t* kv_block;     ///< null: block_step * the sequence's number
  int32_t block_step;          ///< 1: contiguous caches, 0: others
  int32_t batch;               ///< as in `attention`
  const int32_t* block_table;  ///< null where KV is not paged
  int64_t block_table_stride;

  // The host's guess of the partition. A block requests its first page numbers together with the lengths. If
  // the guess is right, it begins with the first tile at once. A wrong guess costs only time.
  Divisor by_guessed_sequence_units, by_block_size;
  int32_t guessed_sequence_units;
  int32_t guessed_first_tile;
  Partition guessed_partition;
  int32_t guess_is_usable;  ///< 0: guessed parts need not begin with a tile, so no block begins by the guess
  int32_t max_seqlen_q, max_seqlen_k;  ///< as in `attention`
  int32_t block_size;                  ///< as in `attention`
  int32_t box_rows;  ///< keys per copy: a tile; paged: 16, 32 or 64, a divisor of block_size
  KvRows k_rows;
  KvRows v_rows;

  int32_t q_chunks;          ///< chunks of 128 bytes in a row of q as it lies in memory
  int32_t group;             ///< G
  int32_t max_rows;          ///< max_seqlen_q * G
  int32_t parts;             ///< parts per KV head (partition.cuh); the grid is (num_heads_kv, parts)
  int32_t min_units;         ///< least units of a part
  int32_t segment_cost;      ///< units counted for beginning a sequence
  int32_t unit_shift;        ///< a unit is 2^unit_shift tiles
  int32_t split_every_unit;  ///< 1: every unit is a split (batch invariant); 0: a part's units are together
  int32_t partials;          ///< partial results per KV head that there is room for
  int32_t most_keys;         ///< most keys of a sequence: more would need room for more partial results
  int32_t window_left;       ///< as in `attention`, but at most kFar
  Divisor by_group, by_parts;

  float tanh_factor;  ///< softcap: 2 log2(e) softmax_scale / softcap, so that tanh(x) = 1 - 2 / (2^(factor s)
                      ///< + 1); 0: no softcap
  float score_factor;  ///< from a raw score (softcap: from its tanh) to a logit in base 2

  // Partial results of split sequences, [kv_head][partials][max_rows]: O normalised, [head_dim] each, and the
  // base-2 logarithm of the sum of weights. Counters, [kv_head][partials], of the splits of a sequence that
  // are done, at the number of its first partial result; zero between launches.
  float* partial_out;
  float* partial_lse;
  uint32_t* counters;

  // Places for states (handover.cuh), [kv_head][parts][max_rows], where the block of a sequence's first split
  // waits for the others: head_dim channels of O and head_dim / 4 copies of the LSE. All are absent between
  // launches.
  float* state_out;
  float* state_lse;

  AttentionParams attention;

  uint32_t* steps;  ///< steps of all blocks (pace.cuh), zero between launches
  float step_ns;    ///< time of a step (pace.cuh) while all blocks read

  int32_t box_shift;  ///< log2 of box_rows

  /// States of suffixes (Shape::suffixes), a row for each query and head, q_row * Hq + head: O normalised,
  /// [head_dim] each; and the base-2 logarithm of the sum of weights (-inf: no key) with a 1.
  float* suffix_out;
  float2* suffix_sum;
};

}  // namespace attnbench::sm90_decode
