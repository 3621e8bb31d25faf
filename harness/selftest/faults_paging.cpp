// Faults of pages, of memory that must not be read, and of heads.
#include <algorithm>
#include <set>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define SMALL "dtype: bf16, heads: 8/2, head_dim: 64"
constexpr const char* kPages =
    "{kv: paged, block_size: 16, " SMALL ", mask: none, batch: q1s100_q1s77_q2s150}";
constexpr const char* kEqualPages = "{kv: paged, block_size: 16, " SMALL ", mask: causal, batch: 4q2s60}";
constexpr const char* kLargePages =
    "{kv: paged, block_size: 64, " SMALL ", mask: none, batch: q1s300_q2s177}";
constexpr const char* kManyPages =
    "{kv: paged, block_size: 16, dtype: bf16, heads: 4/1, head_dim: 64, mask: none, batch: q1s2200}";
/// Ids of more than 15 bits.
constexpr const char* kLargePool =
    "{kv: paged, block_size: 1, pool_blocks: 66000, dtype: bf16, heads: 2/1, head_dim: 32, mask: none, batch: "
    "q1s40_q2s33}";
constexpr const char* kRepeated =
    "{kv: paged, block_size: 16, page_layout: repeated, " SMALL ", mask: none, batch: q1s100_q1s277_q2s350}";
constexpr const char* kExpired =
    "{kv: paged, block_size: 16, " SMALL
    ", mask: causal, window: \"20,0\", expired: nan, batch: q1s100_q1s77_q2s150}";
constexpr const char* kExpiredPacked =
    "{kv: packed, " SMALL ", mask: causal, window: \"20,0\", expired: nan, batch: q1s100_q9s40_q5s77}";
// Pages are in order, so that the first and the last block of the pool hold poison.
constexpr const char* kFreed =
    "{kv: paged, block_size: 16, page_layout: contiguous, " SMALL
    ", mask: causal, window: \"20,0\", expired: freed, batch: q1s100_q1s77_q2s150}";
constexpr const char* kPackedFull = "{kv: packed, " SMALL ", mask: none, batch: q9s40_q5s33}";
constexpr const char* kRatio3 =
    "{kv: packed, dtype: bf16, heads: 6/2, head_dim: 64, mask: causal, batch: q20_q3s33}";
constexpr const char* kRatio7 =
    "{kv: paged, block_size: 16, dtype: bf16, heads: 28/4, head_dim: 64, mask: causal, batch: q2s40_q1s33}";
constexpr const char* kTiles = "{kv: packed, " SMALL ", mask: causal, batch: q40_q33}";

std::size_t at(int64_t i) { return static_cast<std::size_t>(i); }

int32_t& entry(const HostView& v, std::vector<int32_t>& table, int b, int64_t i) {
  return table[at(b * v.p().block_table_stride + i)];
}

Tamper::Fault with_table(const std::function<void(const HostView&, std::vector<int32_t>&)>& change) {
  return with_params([change](Tamper& t, AttentionParams& p) { change_table(t, p, change); });
}

/// A page that belongs to no sequence.
int32_t unmapped_page(const HostView& v) {
  std::set<int32_t> mapped;
  for (int b = 0; b < v.p().batch; ++b) {
    for (int64_t i = 0; i < pages_of(v, b); ++i) mapped.insert(v.table[at(b * v.p().block_table_stride + i)]);
  }
  int32_t page = 0;
  while (mapped.count(page)) ++page;
  return page;
}

/// Adds 0 * V of some rows to the outputs of a sequence, like a product with zero probabilities.
void add_nothing(const HostView& v, OutView& out, int b, int64_t from, int64_t rows) {
  const AttentionParams& p = v.p();
  for (const HostRow& r : v.rows()) {
    if (r.seq != b) continue;
    const int64_t head = r.head / (p.num_heads_q / p.num_heads_kv) * p.v_stride_head;
    for (int64_t j = 0; j < rows; ++j) {
      for (int c = 0; c < p.head_dim; ++c) {
        const int64_t i = from + j * p.v_stride_token + head + c;
        if (at(i + 1) * dtype_size(p.dtype_v) > v.v.size()) continue;
        out.set_o(r.token, r.head, c,
                  out.o(r.token, r.head, c) + 0.0f * load_float(p.dtype_v, v.v.data(), i));
      }
    }
  }
}

/// Number of rows of a sequence that lie left of every query's window.
int64_t expired_rows(const HostView& v, int b) {
  int64_t first = v.k_len(b);
  for (const HostRow& r : v.rows()) {
    if (r.seq == b) first = std::min(first, r.lo);
  }
  return first;
}

std::vector<Fault> wrong_tables() {
  return {{"neighbours_page",
           "one entry of the table is its neighbour's",
           {kPages, kLargePages},
           with_table([](const HostView& v, std::vector<int32_t>& table) {
             if (pages_of(v, 0) > 1) entry(v, table, 0, 1) = entry(v, table, 0, 0);
           }),
           {"kv: paged"},
           "page 1 of sequence 0 are read from page 0 of sequence 0"},
          {"table_row_of_another_request",
           "sequence b reads the table of sequence b + 1",
           {kEqualPages},
           with_table([](const HostView& v, std::vector<int32_t>& table) {
             const std::vector<int32_t> right = table;
             for (int b = 0; b < v.p().batch; ++b) {
               const int other = (b + 1) % v.p().batch;
               const int64_t n = std::min(pages_of(v, b), pages_of(v, other));
               for (int64_t i = 0; i < n; ++i)
                 entry(v, table, b, i) = right[at(other * v.p().block_table_stride + i)];
             }
           }),
           {"kv: paged"},
           "of block_table of sequence"},
          {"table_read_past_its_end",
           "the last page is looked up one entry later, where junk leads nowhere",
           {kPages, kLargePages},
           with_table([](const HostView& v, std::vector<int32_t>& table) {
             for (int b = 0; b < v.p().batch; ++b) {
               if (pages_of(v, b) > 0) entry(v, table, b, pages_of(v, b) - 1) = unmapped_page(v);
             }
           }),
           {},
           "must not be read"},
          {"other_block_size",
           "keys are looked up with half the block size",
           {kLargePages},
           with_params([](Tamper& t, AttentionParams& p) {
             if (!(p.features & kPagedKv) || p.block_size < 2) return;
             const HostView view(t, p);
             const int64_t stride = 2 * p.block_table_stride;
             std::vector<int32_t> table(at(p.batch * stride), 0);
             for (int b = 0; b < p.batch; ++b) {
               for (int64_t i = 0; i < stride; ++i) {
                 const int64_t page = std::min(i, std::max<int64_t>(0, pages_of(view, b) - 1));
                 table[at(b * stride + i)] =
                     std::clamp(view.table[at(b * p.block_table_stride + page)], 0, p.num_blocks - 1);
               }
             }
             p.block_table = t.put(table);
             p.block_table_stride = stride;
             p.block_size /= 2;
           }),
           {"block_size"},
           "with a block size of 32, not 64"},
          {"page_offset_overflow",
           "the offset of a page wraps, here at 8 pages instead of 2^31 elements",
           {kPages},
           with_table([](const HostView& v, std::vector<int32_t>& table) {
             for (int b = 0; b < v.p().batch; ++b) {
               for (int64_t i = 0; i < pages_of(v, b); ++i) entry(v, table, b, i) %= 8;
             }
           }),
           {},
           "must not be read"}};
}

std::vector<Fault> wrong_pages() {
  return {{"nhd_read_as_hnd",
           "the strides of token and head are exchanged",
           {kPages},
           with_params([](Tamper&, AttentionParams& p) {
             if (!(p.features & kPagedKv)) return;
             const bool hnd = (p.features & kHnd) != 0;
             p.features ^= kHnd;
             const int64_t d = p.head_dim;
             p.k_stride_token = p.v_stride_token = hnd ? p.num_heads_kv * d : d;
             p.k_stride_head = p.v_stride_head = hnd ? d : p.block_size * d;
           }),
           {},
           "must not be read"},
          {"stale_page",
           "a page that was freed still holds the keys of another request",
           {kPages, kLargePages},
           with_table([](const HostView& v, std::vector<int32_t>& table) {
             if (v.p().batch > 1 && pages_of(v, 1) > 1) entry(v, table, 0, 0) = entry(v, table, 1, 0);
           }),
           {},
           "page 0 of sequence 0 are read from page 0 of sequence 1"},
          {"freed_page_taken_for_no_sequence",
           "a table row that begins with -1 is taken for a place without a sequence",
           {kFreed},
           with_params([](Tamper& t, AttentionParams& p) {
             if (!(p.features & kPagedKv)) return;
             const HostView view(t, p);
             change_lengths(t, p, [&](int b, int32_t k_len) {
               return view.table[at(b * p.block_table_stride)] < 0 ? 0 : k_len;
             });
           }),
           {"expired: freed"},
           "whose first block is freed"},
          {"v_from_the_wrong_page",
           "K by the table, V from the next page",
           {kPages, kLargePages},
           with_params([](Tamper& t, AttentionParams& p) {
             if (!(p.features & kPagedKv)) return;
             const HostView view(t, p);
             if (p.batch == 0 || pages_of(view, 0) < 2) return;
             std::vector<unsigned char> v = view.v;
             const std::size_t bytes = at(p.v_stride_block) * dtype_size(p.dtype_v);
             const auto page = [&](int64_t i) {
               return static_cast<std::ptrdiff_t>(at(view.table[at(i)]) * bytes);
             };
             std::copy_n(view.v.begin() + page(1), bytes, v.begin() + page(0));
             p.v = t.put(v);
           }),
           {},
           "page 0 of sequence 0 is read from page 1 of sequence 0"},
          {"pages_beyond_128",
           "entry i of the table is taken as i % 128",
           {kManyPages},
           with_table([](const HostView& v, std::vector<int32_t>& table) {
             for (int b = 0; b < v.p().batch; ++b) {
               for (int64_t i = 128; i < pages_of(v, b); ++i)
                 entry(v, table, b, i) = entry(v, table, b, i % 128);
             }
           }),
           {},
           "entry i % 128 of block_table"}};
}

}  // namespace

namespace {

std::vector<Fault> wrong_pools() {
  return {{"block_ids_of_15_bits",
           "ids of blocks are cut to 15 bits",
           {kLargePool},
           with_table([](const HostView&, std::vector<int32_t>& table) {
             for (int32_t& id : table) {
               if (id >= 0) id &= 0x7fff;
             }
           }),
           {"pool_blocks"},
           "must not be read"},
          {"repeated_block_read_once",
           "a block that stands in several places is read in the first one; the others get a spare block",
           {kRepeated},
           with_table([](const HostView& v, std::vector<int32_t>& table) {
             std::set<int32_t> met;
             const int32_t spare = unmapped_page(v);
             for (int b = 0; b < v.p().batch; ++b) {
               for (int64_t i = 0; i < pages_of(v, b); ++i) {
                 int32_t& id = entry(v, table, b, i);
                 if (!met.insert(id).second) id = spare;
               }
             }
           }),
           {"page_layout: repeated"},
           "must not be read"}};
}

}  // namespace

FaultClass paging_faults() { return {"paging", joined({wrong_tables(), wrong_pages(), wrong_pools()})}; }

FaultClass nan_faults() {
  return {"NaN",
          {{"page_tail_times_zero",
            "the unread tail of a page is multiplied by zero probabilities",
            {kPages, kLargePages},
            with_output([](const HostView& v, OutView& out) {
              for (int b = 0; (v.p().features & kPagedKv) && b < v.p().batch; ++b) {
                const int64_t n = v.k_len(b);
                if (n % v.p().block_size == 0) continue;
                add_nothing(v, out, b, v.kv_offset(b, n, 0, true), v.p().block_size - n % v.p().block_size);
              }
            }),
            {},
            "must not be read"},
           {"expired_rows_times_zero",
            "rows left of the window are multiplied by zero probabilities",
            {kExpired, kExpiredPacked},
            with_output([](const HostView& v, OutView& out) {
              for (int b = 0; b < v.p().batch; ++b) {
                const int64_t n = expired_rows(v, b);
                for (int64_t j = 0; j < n; ++j) add_nothing(v, out, b, v.kv_offset(b, j, 0, true), 1);
              }
            }),
            {"expired: nan"},
            "must not be read"},
           {"freed_page_times_zero",
            "ids outside the pool are clamped into it, and the rows there multiplied by zero probabilities",
            {kFreed},
            with_output([](const HostView& v, OutView& out) {
              for (int b = 0; (v.p().features & kPagedKv) && b < v.p().batch; ++b) {
                const int64_t freed = expired_rows(v, b) / v.p().block_size;
                for (int64_t i = 0; i < freed; ++i) {
                  const int32_t page = v.table[at(b * v.p().block_table_stride + i)];
                  const int64_t clamped = std::clamp(page, 0, v.p().num_blocks - 1);
                  add_nothing(v, out, b, clamped * v.p().v_stride_block, v.p().block_size);
                }
              }
            }),
            {"expired: freed"},
            "must not be read"},
           {"neighbours_packed_rows",
            "rows behind a packed sequence are multiplied by zero probabilities",
            {"{kv: packed, gap_tokens: 8, " SMALL ", mask: none, batch: q9s40_q5s33}"},
            with_output([](const HostView& v, OutView& out) {
              for (int b = 0; (v.p().features & kPackedKv) && b < v.p().batch; ++b)
                add_nothing(v, out, b, v.kv_offset(b, v.k_len(b), 0, true), 8);
            }),
            {},
            "must not be read"}}};
}

FaultClass head_faults() {
  return {"heads",
          {known("ratio_3_rounded", "3 query heads per KV head are taken as 4", {kRatio3}, {"heads"}),
           known("ratio_7_rounded", "7 query heads per KV head are taken as 8", {kRatio7}, {"heads"}),
           known("kv_head_modulo", "KV head h % Hkv instead of h / ratio", {kPackedFull, kRatio7}, {"heads"}),
           known("v_head_behind", "V of the next KV head; K is of the right one", {kPackedFull, kRatio7},
                 {"heads"}),
           {"accumulator_not_reset",
            "the first row of a tile keeps the sums of the row before it",
            {kTiles},
            with_output([](const HostView& v, OutView& out) {
              for (const HostRow& r : v.rows()) {
                if (r.i == 0 || r.i % 16 != 0) continue;
                for (int c = 0; c < v.p().head_dim; ++c)
                  out.set_o(r.token, r.head, c, out.o(r.token, r.head, c) + out.o(r.token - 1, r.head, c));
              }
            }),
            {},
            "rows keep the sums of others"},
           {"lse_transposed",
            "LSE is written as (token, head)",
            {kPackedFull, kPages},
            with_output([](const HostView& v, OutView& out) {
              const std::vector<float> right = out.lse;
              const int64_t heads = v.p().num_heads_q;
              const int64_t tokens = v.p().lse_stride_head;
              for (int64_t t = 0; t < tokens; ++t) {
                for (int64_t h = 0; h < heads; ++h) out.lse[at(t * heads + h)] = right[at(h * tokens + t)];
              }
            }),
            {},
            "(total_q, Hq)"}}};
}

}  // namespace attnbench
