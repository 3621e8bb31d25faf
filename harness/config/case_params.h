// What one case asks for: plain data, set by the keys of the YAML format (keys.h), independent of any device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/config/given_blocks.h"
#include "harness/config/serving_spec.h"
#include "harness/ops/op.h"
#include "harness/values/values.h"

namespace attnbench {

class CapturedTensors;  // captured.h

enum class KvSource { kPacked, kPaged, kContiguous };
enum class KvLayout { kNhd, kHnd };
enum class PageLayout { kContiguous, kShuffled, kSharedPrefix, kLifoAged, kServed, kRepeated };
/// How attention is computed: as one call, or as a plan of several launches (harness/cases/paths.h).
enum class Path { kOneCall, kCascade, kSplitDecode, kDcp };
/// How the ranks of path dcp meet. kOneDevice: they are launches on one device, whose states a merge_states
/// kernel merges. Otherwise rank r is GPU r (harness/launch/rank_exchange.h).
enum class Combine { kOneDevice, kAllGather, kAllToAll, kFused };
/// ALiBi slopes: none, one per query head, or one per sequence and query head.
enum class Alibi { kNone, kPerHead, kPerSequence };
/// Masks with a bit for each query and key (harness/ops/attention/tensors_custom_mask.h). kTree: the new tokens form a tree,
/// each sees the older keys, its ancestors and itself. kItems: several items behind a common prefix, each sees
/// the prefix and itself up to the diagonal. kBlocks: blocks of keys, drawn for blocks of queries.
enum class CustomMask { kNone, kRandom, kTree, kItems, kBlocks };
/// Whether there is a causal mask. Its last query sees the last key or, with top_left, its first query the first key
/// alone.
struct CausalMask {
  bool on = false, top_left = false;
  constexpr CausalMask(bool is_on = false, bool is_top_left = false) : on(is_on), top_left(is_top_left) {}
  constexpr operator bool() const { return on; }
  bool operator==(const CausalMask&) const = default;
};
/// How many entries of topk_indices count: all, a number drawn for each query, or none.
enum class TopkLength { kFull, kDrawn, kZero };
/// What kv_append does with the queries of its tokens: nothing, or return them in dtype or e4m3.
enum class QueryOut { kNone, kSame, kE4m3 };
/// What K and V hold in rows left of every query's window. kKept: values, like all rows. kNan: poison.
/// kFreed: poison, and junk in the block_table entries of blocks that hold only such rows.
enum class Expired { kKept, kNan, kFreed };
/// Rotary embedding: none, or how the channels of a row pair up.
enum class Rotary { kNone, kNeox, kInterleaved };
/// What keys and values are quantised to: both to one type, or K alone to int8. kNvfp4: e2m1 with a scale in e4m3
/// for 16 channels. kDsMla: a latent in e4m3 with a scale in fp32 for 128 channels, and a rotary part in bf16.
enum class KvDType { kSame, kE4m3, kInt8, kInt8K, kE5m2, kNvfp4, kDsMla };

/// Scales with which kv_append quantises new rows. kGiven: inputs of the launch. kPerToken: computed per
/// (token, head). kPerTokenK: computed for K and given for V, the form in which attention reads int8.
enum class Scales { kGiven, kPerToken, kPerTokenK };

/// How the LSE of a partial state says that it has seen no key.
enum class EmptyLse { kMinusInf, kPlusInf, kBoth };

/// What kv_move does: copies blocks to blocks, or rows of sequences to a packed tensor.
enum class Move { kBlocks, kGather };
/// First row of each sequence that kv_move gathers: 0, some multiple of block_size, or any row.
enum class Starts { kNone, kBlocks, kAny };

/// What a launch contradicts, so that the kernel must refuse it (harness/ops/tensors_ops.h).
enum class BadLaunch {
  kNone,
  kFeature,
  kDType,
  kHeadDim,
  kHeads,
  kBlockSize,
  kNumSplits,
  kBlockTable,
  kPointer
};

inline constexpr const char* kEmptyLseNames[] = {"minus_inf", "plus_inf", "both"};
inline constexpr const char* kBadLaunchNames[] = {
    "none", "feature", "dtype", "head_dim", "heads", "block_size", "num_splits", "block_table", "pointer"};
constexpr const char* bad_launch_name(BadLaunch b) { return kBadLaunchNames[static_cast<int>(b)]; }
/// What shares a descale, or a scale that kv_append is given. kUsual: attention in e4m3, a sequence's KV head;
/// in int8, a row of q or K, a channel of V; kv_append, a KV head in e4m3, a channel of it in int8. kToken: a row of K
/// or V.
enum class DescalesPer { kUsual, kHead, kTensor, kToken, kChannel };

inline constexpr const char* kKvNames[] = {"packed", "paged", "contiguous"};
constexpr const char* kv_name(KvSource kv) { return kKvNames[static_cast<int>(kv)]; }
inline constexpr const char* kKvLayoutNames[] = {"nhd", "hnd"};
constexpr const char* kv_layout_name(KvLayout l) { return kKvLayoutNames[static_cast<int>(l)]; }
inline constexpr const char* kKvDtypeNames[] = {"same", "e4m3",  "int8",      "int8_k",
                                                "e5m2", "nvfp4", "fp8_ds_mla"};
constexpr const char* kv_dtype_name(KvDType t) { return kKvDtypeNames[static_cast<int>(t)]; }
inline constexpr const char* kScalesNames[] = {"given", "per_token", "per_token_k"};
constexpr const char* scales_name(Scales s) { return kScalesNames[static_cast<int>(s)]; }
inline constexpr const char* kDescalesPerNames[] = {"usual", "per_head", "per_tensor", "per_token",
                                                    "per_channel"};
constexpr const char* descales_per_name(DescalesPer d) { return kDescalesPerNames[static_cast<int>(d)]; }
inline constexpr const char* kPageLayoutNames[] = {"contiguous", "shuffled", "shared_prefix",
                                                   "lifo_aged",  "served",   "repeated"};
constexpr const char* page_layout_name(PageLayout l) { return kPageLayoutNames[static_cast<int>(l)]; }
inline constexpr const char* kAlibiNames[] = {"none", "per_head", "per_sequence"};
inline constexpr const char* kExpiredNames[] = {"kept", "nan", "freed"};
constexpr const char* expired_name(Expired e) { return kExpiredNames[static_cast<int>(e)]; }

inline constexpr const char* kCustomMaskNames[] = {"none", "random", "tree", "items", "blocks"};
inline constexpr const char* kTopkLengthNames[] = {"full", "drawn", "zero"};
inline constexpr const char* kQueryOutNames[] = {"none", "same", "e4m3"};
inline constexpr const char* kMoveNames[] = {"blocks", "gather"};
constexpr const char* move_name(Move m) { return kMoveNames[static_cast<int>(m)]; }
inline constexpr const char* kStartsNames[] = {"none", "blocks", "any"};
inline constexpr const char* kPathNames[] = {"one_call", "cascade", "split_decode", "dcp"};
constexpr const char* path_name(Path p) { return kPathNames[static_cast<int>(p)]; }
inline constexpr const char* kCombineNames[] = {"one_device", "all_gather", "all_to_all", "fused"};
constexpr const char* combine_name(Combine c) { return kCombineNames[static_cast<int>(c)]; }
inline constexpr const char* kRotaryNames[] = {"none", "neox", "interleaved"};
constexpr const char* rotary_name(Rotary r) { return kRotaryNames[static_cast<int>(r)]; }
inline constexpr const char* kRotaryQNames[] = {"diagonal", "from_cache_seqlens", "at_cache_seqlens"};
constexpr const char* rotary_q_name(RotaryQ r) { return kRotaryQNames[static_cast<int>(r)]; }

/// Query and key length of one sequence, in tokens.
struct SeqLen {
  int32_t q = 0;
  int32_t k = 0;
  bool operator==(const SeqLen&) const = default;
};

struct CaseParams {
  Op op = Op::kAttention;
  DType dtype = DType::kBf16;
  std::optional<DType> q_dtype;       ///< quantised queries; else dtype
  KvDType kv_dtype = KvDType::kSame;  ///< quantised keys and values; else dtype
  DescalesPer q_descales = DescalesPer::kUsual;
  DescalesPer k_descales = DescalesPer::kUsual;
  DescalesPer v_descales = DescalesPer::kUsual;  ///< descales_of(true) is what V has
  bool e4m3_out = false;                         ///< O is stored in e4m3, with a scale
  int32_t q_descale_rows = 1;                    ///< rows of int8 q that share a descale
  int32_t k_descale_rows = 1;                    ///< the same of K with row_descales
  int32_t num_heads_q = 32;
  int32_t num_heads_kv = 8;
  int32_t head_dim = 128;
  int32_t head_dim_v = 0;    ///< width of values and outputs; 0: head_dim
  bool v_is_k_view = false;  ///< values are the first head_dim_v channels of the keys
  bool one_row = false;      ///< kv_append: a value and its key are one row of the cache

  std::vector<SeqLen> seqs;            ///< from `batch`; empty is legal (no sequence)
  std::optional<ServingPick> serving;  ///< a step of a replay stands for `seqs`; expand() puts them there
  std::optional<ServedStep> served;    ///< the step that `seqs` are of
  bool allow_short_kv = false;

  KvSource kv = KvSource::kPacked;
  KvLayout kv_layout = KvLayout::kNhd;
  int32_t block_size = 16;
  PageLayout page_layout = PageLayout::kShuffled;
  /// The block table; null: page_layout draws it. For one launch on keys that are not int8.
  std::shared_ptr<const GivenBlocks> blocks;
  int32_t shared_prefix = 0;  ///< page_layout shared_prefix: leading tokens that all sequences share
  int32_t pool_blocks = 0;    ///< paged: least number of blocks in the pool; 0: what the sequences need
  int32_t gap_tokens = 0;     ///< packed: unused rows after each sequence's keys (seqused_k is passed)

  int32_t gap_queries = 0;      ///< bound of the unused rows after each sequence (seqused_q is passed)
  bool shuffled_table = false;  ///< paged: block_table rows not in the sequences' order (cache_batch_idx)

  int32_t leftpad = 0;         ///< not packed: most unused rows before a sequence's first key (cache_leftpad)
  bool shuffled_cache = true;  ///< contiguous: cache rows not in the sequences' order (cache_batch_idx)

  CausalMask causal;
  int32_t window_left = -1;
  int32_t window_right = -1;
  bool window_drawn = false;    ///< both sides are to be drawn; expand() puts numbers in their place
  int32_t attention_chunk = 0;  ///< tokens of a chunk; 0: none
  CustomMask custom_mask = CustomMask::kNone;
  int32_t topk = 0;  ///< keys that a query's list has room for; 0: no lists
  TopkLength topk_length = TopkLength::kFull;
  bool qv = false;                      ///< a second query that is multiplied with V
  Expired expired = Expired::kKept;     ///< content of rows left of every query's window
  std::optional<double> softmax_scale;  ///< default 1/sqrt(head_dim)
  double softcap = 0.0;
  Alibi alibi = Alibi::kNone;
  bool alibi_sqrt = false;  ///< bias by the square root of the distance
  bool sinks = false;       ///< one logit per query head in the denominator
  int32_t num_splits = 0;   ///< parts that the keys are cut into; 0: the kernel's choice

  bool append = false;            ///< attention: new keys and values are written in the same call
  int32_t new_tokens = 0;         ///< append: most new tokens of a sequence; 0: as many as it has queries
  bool new_as_stored = false;     ///< append: new rows come in the type of a quantised cache
  Rotary rotary = Rotary::kNone;  ///< applied to new keys (and to queries)
  int32_t rotary_dim = 0;         ///< channels that turn; 0: head_dim
  RotaryQ rotary_q = RotaryQ::kDiagonal;  ///< positions of queries
  bool rotary_cached = false;             ///< attention: keys of the cache turn when they are read
  bool probs = false;                     ///< attention probabilities are returned
  double dropout = 0.0;                   ///< share of the weights that are dropped, [0, 1)

  int32_t padding_tokens = 0;    ///< kv_append: tokens whose slot is -1, spread over the batch
  bool arbitrary_slots = false;  ///< kv_append: slots anywhere in the pool, not those of a block table
  QueryOut query_out = QueryOut::kNone;
  bool positions64 = false;        ///< kv_append: positions are 64-bit
  Scales scales = Scales::kGiven;  ///< kv_append into a quantised cache

  Move move = Move::kBlocks;      ///< kv_move
  bool two_pools = false;         ///< kv_move: blocks go to another pool
  Starts starts = Starts::kNone;  ///< kv_move: first gathered row of each sequence

  int32_t states = 2;            ///< merge_states: partial states per row
  double empty_states = 0.25;    ///< merge_states: share of states whose LSE is -inf and whose O is poison
  bool lse_token_major = false;  ///< merge_states: partial LSEs as (N, T, H) instead of (N, H, T)
  bool lse_dense = false;        ///< merge_states: no gaps between partial LSEs
  bool partial_fp32 = true;      ///< partial O in fp32, else in dtype
  bool ragged_states = false;    ///< merge_states: rows have 0 to `states` states
  EmptyLse empty_lse = EmptyLse::kMinusInf;  ///< merge_states: LSE of empty states

  bool lse_base2 = false;            ///< LSEs that are read and written are to base 2
  bool out_lse_token_major = false;  ///< the LSE that is written is (total_q, Hq)

  bool expect_refused = false;              ///< the case passes if the kernel refuses it
  BadLaunch bad_launch = BadLaunch::kNone;  ///< what is wrong with the launch

  Path path = Path::kOneCall;
  int32_t decode_threshold = 1;  ///< split_decode: most queries of a decode
  int32_t dcp_ranks = 2;         ///< dcp: ranks that the keys are spread over
  int32_t dcp_interleave = 1;    ///< dcp: neighbouring keys on one rank
  Combine dcp_combine = Combine::kOneDevice;

  Profile data = Profile::kNormal;
  /// Values of q, K and V from a file; null: they are drawn by `data`.
  std::shared_ptr<const CapturedTensors> captured;

  const OpTraits& does() const { return traits_of(op); }
  /// Whether K and V lie in pages.
  bool paged() const { return does().copies() || (!does().merges && kv == KvSource::kPaged); }
  DType type_of_q() const { return q_dtype.value_or(dtype); }
  DType type_of_k() const {
    switch (kv_dtype) {
      case KvDType::kSame:
        return dtype;
      case KvDType::kE4m3:
      case KvDType::kDsMla:
        return DType::kE4m3;
      case KvDType::kNvfp4:
        return DType::kE2m1x2;
      case KvDType::kE5m2:
        return DType::kE5m2;
      default:
        return DType::kInt8;
    }
  }
  DType type_of_v() const { return kv_dtype == KvDType::kInt8K ? dtype : type_of_k(); }
  DType type_of_kv(bool is_v) const { return is_v ? type_of_v() : type_of_k(); }
  /// Channels that share a scale of K or V besides the descale (kBlockScales); 0: none.
  int32_t scale_block() const {
    return kv_dtype == KvDType::kNvfp4 ? 16 : kv_dtype == KvDType::kDsMla ? 128 : 0;
  }
  DType type_of_block_scale() const { return kv_dtype == KvDType::kNvfp4 ? DType::kE4m3 : DType::kFp32; }
  /// Last channels of K that are in bf16 (kKTail).
  int32_t k_tail() const { return kv_dtype == KvDType::kDsMla ? head_dim - dim_v() : 0; }
  DType type_of_out() const { return e4m3_out ? DType::kE4m3 : dtype; }
  /// Type in which new rows of K or V come.
  DType type_of_new(bool is_v) const {
    return does().appends || (append && !new_as_stored) ? dtype : type_of_kv(is_v);
  }
  /// Whether a launch rounds new rows of K or V to the type of a quantised cache.
  bool rounds_new(bool is_v) const {
    return (does().appends || append) && type_of_new(is_v) != type_of_kv(is_v);
  }
  /// Whether kv_append quantises new rows of K or V, and whether it computes their scales.
  bool quantises(bool is_v) const { return does().appends && rounds_new(is_v); }
  bool computes_scales(bool is_v) const {
    return quantises(is_v) && (scales == Scales::kPerToken || (scales == Scales::kPerTokenK && !is_v));
  }
  /// GPUs that the case is spread over.
  int32_t devices() const {
    const bool apart = does().forward() && path == Path::kDcp && dcp_combine != Combine::kOneDevice;
    return apart ? dcp_ranks : 1;
  }
  int32_t dim_v() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
  int32_t dim_of_kv(bool is_v) const { return is_v ? dim_v() : head_dim; }
  /// What shares a descale of K or V. V that lies in a row with K has K's.
  DescalesPer descales_of(bool is_v) const {
    if (does().moves) return DescalesPer::kTensor;
    return is_v && !v_is_k_view && !one_row ? v_descales : k_descales;
  }
  /// Whether each row of K or V has a descale.
  bool row_descales(bool is_v) const {
    const bool usual = !is_v && type_of_k() == DType::kInt8;
    return does().forward() && (usual || descales_of(is_v) == DescalesPer::kToken);
  }
  DType type_of_partial() const { return partial_fp32 ? DType::kFp32 : dtype; }

  /// Tokens that a launch writes to the cache: the last ones of the sequence.
  int32_t new_len(const SeqLen& s) const {
    if (does().appends) return s.q;
    return !append ? 0 : new_tokens == 0 ? s.q : new_tokens < s.k ? new_tokens : s.k;
  }
  bool gathers() const { return does().moves && move == Move::kGather; }
  /// First row of sequence b that kv_move gathers: a share of its rows that depends on b alone, so that costs
  /// are exact.
  int32_t start_of(std::size_t b) const {
    if (!gathers() || starts == Starts::kNone) return 0;
    const int64_t eighths = static_cast<int64_t>((5 * b + 3) % 8);
    const auto start = static_cast<int32_t>(seqs[b].k * eighths / 8);
    return starts == Starts::kAny ? start : start / block_size * block_size;
  }
  /// Leading tokens that all sequences share: they use the blocks and values of sequence 0. All sequences
  /// then have the descales of sequence 0, because one stored row can stand for one value only.
  int32_t shared_tokens() const {
    return kv == KvSource::kPaged && page_layout == PageLayout::kSharedPrefix ? shared_prefix : 0;
  }
  /// Rotary position of query i of a sequence.
  int32_t rotary_position(const SeqLen& s, int32_t i) const {
    if (rotary_q == RotaryQ::kDiagonal) return i + s.k - s.q;
    return s.k - new_len(s) + (rotary_q == RotaryQ::kFromCacheSeqlens ? i : 0);
  }
  /// Rows of the rotary tables: one for every position from 0 to the last one of a key or a query.
  int32_t rotary_positions() const {
    int32_t n = 0;
    for (const SeqLen& s : seqs) n = std::max({n, s.k, s.q > 0 ? rotary_position(s, s.q - 1) + 1 : 0});
    return n;
  }
  int32_t rotary_width() const { return rotary_dim > 0 ? rotary_dim : head_dim; }

  bool operator==(const CaseParams&) const = default;
};

}  // namespace attnbench
