// What the host hands to the device code, and the words of this folder.
//
// Words: G = Hq / Hkv query heads share a KV head.
//   row tile     query rows that one block computes: min(G, 64) heads of some tokens of a sequence. Row r is
//                token r / tile_heads and head r % tile_heads of the tile.
//   line         the tiles of all sequences, for one KV head and one row tile of each sequence
//   tile         64 neighbouring keys of a sequence
//   slot         a buffer of the ring, for a tile (shape.cuh)
//   part, segment, split    pieces of a line: ../common/partition.cuh; a unit is a tile
//   item         a segment, as the producer publishes it to the consumers (shape.cuh)
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/contract/attention_params.h"
#include "kernels/contract/hd.h"
#include "kernels/cuda/common/divisor.h"
#include "kernels/cuda/common/kv_rows.h"
#include "kernels/cuda/common/partition.cuh"

namespace attnbench::sm90_mla {

inline constexpr int kKeyChannels = 576;
inline constexpr int kValueChannels = 512;
inline constexpr int kTileKeys = 64;
inline constexpr int kLeastSplitTiles = 2;         ///< in shares (../common/partition.cuh)
inline constexpr int kChunks = kKeyChannels / 64;  ///< of 128 bytes, in a row
/// A tile comes in three parts: the halves of the values, and the rest.
inline constexpr int kHalfChunks = kValueChannels / 64 / 2;
inline constexpr int kRest = 2;  ///< the part that is no value; the halves are parts 0 and 1
ATTNBENCH_HD constexpr int part_chunks(int part) {
  return part == kRest ? kChunks - 2 * kHalfChunks : kHalfChunks;
}

/// Tensor maps of one launch. `rows` brings whole boxes of keys, `tail` eight keys of which the last ones may
/// arrive as zeros (tensor_map.h).
struct Maps {
  struct Keys {
    CUtensorMap rows, tail;
  };
  CUtensorMap q;
  Keys half, rest;
};

/// By-value parameter of the kernel.
struct alignas(64) KernelParams {
  // Where a sequence's keys, and their rows, begin and end, an entry per sequence. k_len is k_end - k_begin.
  const int32_t* k_end;
  const int32_t* k_begin;      ///< null: zeros
  const int32_t* kv_row;       ///< null: zeros
  const int32_t* kv_block;     ///< null: block_step * the sequence's number
  int32_t block_step;          ///< 1: contiguous caches, 0: others
  int32_t box_rows;            ///< keys per copy: 64, 32 or 16, a divisor of block_size
  const int32_t* block_table;  ///< null where KV is not paged
  Divisor by_block_size;
  hopper::KvRows kv_rows;

  int32_t group;            ///< G
  int32_t tile_heads;       ///< heads of a row tile: min(G, 64)
  int32_t tile_tokens;      ///< query tokens of a row tile
  int32_t tiles_per_token;  ///< row tiles that share a query token: 1 if tile_tokens > 1
  Divisor by_tile_heads, by_tiles_per_token;
  int32_t partial_rows;  ///< rows of a partial result: those of a row tile, rounded up to 16
  int32_t row_tiles;     ///< row tiles per sequence and KV head
  Divisor by_row_tiles;

  int32_t parts;         ///< parts per line; the grid is (lines, parts)
  int32_t segment_cost;  ///< units counted for beginning a sequence
  Divisor by_parts;
  hopper::Shares shares;  ///< they are taken where no part has more than shares_slack units above equal parts
  int32_t shares_slack;
  float score_factor;  ///< from a raw score to a logit in base 2

  // Partial results of split sequences, [lines][2 * parts][partial_rows]: O, normalised, and the base-2
  // logarithm of the sum of weights. Counters of arrivals (rows.cuh), [lines][2 * parts], at the number of a
  // sequence's first partial result; zero between launches.
  float* partial_out;
  float* partial_lse;
  uint32_t* arrivals;

  AttentionParams attention;
};

}  // namespace attnbench::sm90_mla
