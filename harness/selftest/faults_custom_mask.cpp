// Faults of custom masks: bits that are not read, or read from the wrong place.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define SMALL "dtype: bf16, heads: 8/2, head_dim: 64"
constexpr const char* kRandomMask[] = {
    "{kv: packed, " SMALL ", mask: none, custom_mask: random, batch: q9s61_q5s37}",
    "{kv: paged, block_size: 16, " SMALL ", mask: none, custom_mask: random, batch: q9s61_q5s37}",
};
constexpr const char* kTreeMask[] = {
    "{kv: paged, block_size: 16, " SMALL ", mask: none, custom_mask: tree, batch: q7s45_q9s70_q5s33}",
    "{kv: packed, " SMALL ", mask: none, custom_mask: tree, batch: q7s45_q9s70_q5s33}",
};
constexpr const char* kItemMask[] = {
    "{kv: packed, " SMALL ", mask: causal, custom_mask: items, batch: q41_q30s77}",
    "{kv: paged, block_size: 16, " SMALL ", mask: causal, custom_mask: items, batch: q41_q30s77}",
};
constexpr const char* kBlockMask[] = {
    "{kv: packed, " SMALL ", mask: none, custom_mask: blocks, batch: q40s101_q20s150}",
    "{kv: paged, block_size: 16, " SMALL ", mask: none, custom_mask: blocks, batch: q40s101_q20s150}",
};

/// A launch whose mask is changed: `to` gets the parameters, the bytes and the beginnings of the sequences in them.
Tamper::Fault with_mask(
    std::function<void(const HostView&, std::vector<unsigned char>&, std::vector<int32_t>&)> to) {
  return with_params([to = std::move(to)](Tamper& t, AttentionParams& p) {
    if (p.custom_mask == nullptr) return;
    const HostView view(t, p);
    std::vector<unsigned char> mask = view.mask_bytes;
    std::vector<int32_t> indptr = view.mask_indptr;
    to(view, mask, indptr);
    p.custom_mask = t.put(mask);
    p.mask_indptr = t.put(indptr);
  });
}

std::size_t bit_index(int64_t i) { return static_cast<std::size_t>(i); }

/// What a kernel reads that takes each row of bits to begin a byte.
void pad_rows(const HostView& v, std::vector<unsigned char>& mask, const std::vector<int32_t>& indptr) {
  const std::vector<unsigned char> right = mask;
  for (int b = 0; b < v.p().batch; ++b) {
    const int64_t k = v.k_len(b), q = v.cu_q[bit_index(b + 1)] - v.cu_q[bit_index(b)],
                  begin = indptr[bit_index(b)];
    const int64_t stride = (k + 7) / 8 * 8;
    for (int64_t n = 0; n < q * k; ++n) {
      const int64_t read = n / k * stride + n % k;
      const std::size_t from = bit_index(begin + read / 8);
      const unsigned bit = from < right.size() ? right[from] >> (read % 8) & 1u : 0u;
      unsigned char& byte = mask[bit_index(begin + n / 8)];
      byte = static_cast<unsigned char>((byte & ~(1u << (n % 8))) | bit << (n % 8));
    }
  }
}

}  // namespace

FaultClass custom_mask_faults() {
  return {"custom masks",
          {{"custom_mask_ignored",
            "every key is seen that the other masks show",
            {std::begin(kBlockMask), std::end(kBlockMask)},
            with_params([](Tamper&, AttentionParams& p) {
              p.features &= ~uint64_t{kCustomMask};
              p.custom_mask = nullptr;
              p.mask_indptr = nullptr;
            }),
            {"custom_mask: blocks"}},
           {"custom_mask_from_the_highest_bit",
            "bits are counted from the highest of a byte, as NumPy packs them",
            {std::begin(kRandomMask), std::end(kRandomMask)},
            with_mask([](const HostView&, std::vector<unsigned char>& mask, std::vector<int32_t>&) {
              for (unsigned char& byte : mask) {
                unsigned turned = 0;
                for (unsigned i = 0; i < 8; ++i) turned |= (byte >> i & 1u) << (7 - i);
                byte = static_cast<unsigned char>(turned);
              }
            }),
            {"custom_mask: random"}},
           {"custom_mask_of_sequence_0",
            "the bits of sequence 0 are taken for all sequences",
            {std::begin(kTreeMask), std::end(kTreeMask)},
            with_mask([](const HostView&, std::vector<unsigned char>&, std::vector<int32_t>& indptr) {
              std::fill(indptr.begin(), indptr.end(), indptr.front());
            }),
            {"custom_mask: tree"}},
           {"custom_mask_rows_padded",
            "each row of bits is taken to begin a byte",
            {std::begin(kItemMask), std::end(kItemMask)},
            with_mask([](const HostView& v, std::vector<unsigned char>& mask, std::vector<int32_t>& indptr) {
              pad_rows(v, mask, indptr);
            }),
            {"custom_mask: items"}}}};
}

}  // namespace attnbench
