// Faults of caches with scales for blocks of channels: nvfp4, and rows of fp8_ds_mla.
#include <algorithm>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

constexpr const char* kFp4Pages =
    "{kv: paged, block_size: 16, dtype: bf16, kv_dtype: nvfp4, heads: 8/2, head_dim: 64, mask: causal, batch: "
    "q5s70_q20s20}";
constexpr const char* kDsMlaPages =
    "{kv: paged, block_size: 16, dtype: bf16, kv_dtype: fp8_ds_mla, heads: 16/1, head_dim: 288, head_dim_v: 256, "
    "v_is_k_view: true, mask: causal, batch: q1s70_q3s40}";

/// A copy of what holds K or V, or their scales, with these strides. change(row) is called for each row; packed rows
/// lie in one block.
template <class F>
std::vector<uint8_t> changed_rows(Tamper& t, const AttentionParams& p, const void* at, int64_t block,
                                  int64_t token, int64_t head, F&& change) {
  int64_t blocks = p.num_blocks, rows = p.block_size;
  if ((p.features & kPackedKv) != 0) {
    blocks = 1;
    rows = t.read<int32_t>(p.cu_seqlens_k, p.batch + 1).back();
    block = rows * token;
  }
  auto bytes = t.read<uint8_t>(at, blocks * block);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t h = 0; h < p.num_heads_kv; ++h)
        change(&bytes[static_cast<std::size_t>(b * block + r * token + h * head)]);
    }
  }
  return bytes;
}

/// Gives an nvfp4 launch other scales: change(scales of a row, their number).
Tamper::Fault with_fp4_scales(void (*change)(uint8_t* scales, int n)) {
  return with_params([change](Tamper& t, AttentionParams& p) {
    const auto replace = [&](const void*& at, int64_t block, int64_t token, int64_t head, int32_t dim) {
      at = t.put(changed_rows(t, p, at, block, token, head,
                              [&](uint8_t* row) { change(row, dim / p.scale_block); }));
    };
    replace(p.k_block_scale, p.k_block_scale_stride_block, p.k_block_scale_stride_token,
            p.k_block_scale_stride_head, p.head_dim);
    replace(p.v_block_scale, p.v_block_scale_stride_block, p.v_block_scale_stride_token,
            p.v_block_scale_stride_head, p.head_dim_v);
  });
}

/// The parts of a row of fp8_ds_mla.
struct LatentRow {
  float* scales;
  int blocks;
  uint16_t* tail;
  int tail_channels;
};

/// Gives a launch on rows of fp8_ds_mla other rows.
Tamper::Fault with_latent_rows(void (*change)(LatentRow row)) {
  return with_params([change](Tamper& t, AttentionParams& p) {
    const auto offset = [&](const void* part) {
      return static_cast<const uint8_t*>(part) - static_cast<const uint8_t*>(p.k);
    };
    const auto scales = offset(p.k_block_scale), tail = offset(p.k_tail);
    const uint8_t* put =
        t.put(changed_rows(t, p, p.k, p.k_stride_block, p.k_stride_token, p.k_stride_head, [&](uint8_t* row) {
          change({reinterpret_cast<float*>(row + scales), p.head_dim_v / p.scale_block,
                  reinterpret_cast<uint16_t*>(row + tail), p.head_dim - p.head_dim_v});
        }));
    p.k = p.v = put;
    p.k_block_scale = p.v_block_scale = put + scales;
    p.k_tail = put + tail;
  });
}

std::vector<Fault> fp4_caches() {
  return {{"fp4_scales_ignored",
           "numbers of K and V in e2m1 are taken without the scales of their blocks",
           {kFp4Pages},
           with_fp4_scales([](uint8_t* scales, int n) { std::fill_n(scales, n, float_to_e4m3(1.0f)); }),
           {"kv_dtype: nvfp4"},
           "scales of blocks of channels are not applied"},
          {"fp4_scale_of_the_next_block",
           "a block of 16 channels has the scale of its neighbour",
           {kFp4Pages},
           with_fp4_scales([](uint8_t* scales, int n) { std::rotate(scales, scales + 1, scales + n); }),
           {},
           "the scales of their neighbours"},
          {"fp4_scales_of_32_channels",
           "32 channels share a scale, as in MXFP4",
           {kFp4Pages},
           with_fp4_scales([](uint8_t* scales, int n) {
             for (int i = n - 1; i >= 0; --i) scales[i] = scales[i / 2];
           }),
           {},
           "share a scale"},
          {"fp4_scales_of_row_0",
           "all rows of a page have the scales of its first",
           {kFp4Pages},
           with_params([](Tamper&, AttentionParams& p) { p.k_block_scale_stride_token = 0; }),
           {},
           "the first token of their page"},
          {"fp4_scales_of_head_0",
           "all KV heads have the scales of the first",
           {kFp4Pages},
           with_params([](Tamper&, AttentionParams& p) { p.v_block_scale_stride_head = 0; }),
           {},
           "the scales of head 0"},
          {"fp4_scales_of_k_for_v",
           "V has the scales of K",
           {kFp4Pages},
           with_params([](Tamper&, AttentionParams& p) { p.v_block_scale = p.k_block_scale; }),
           {},
           "V have the scales of K"},
          {"fp4_nibbles_exchanged",
           "the first of two channels is taken from the upper half of the byte",
           {kFp4Pages},
           with_params([](Tamper& t, AttentionParams& p) {
             const std::vector<int32_t> cu_k = (p.features & kPackedKv) != 0
                                                   ? t.read<int32_t>(p.cu_seqlens_k, p.batch + 1)
                                                   : std::vector<int32_t>();
             for (const bool is_v : {false, true}) {
               const void*& at = is_v ? p.v : p.k;
               auto bytes = t.read<uint8_t>(at, kv_elements(p, cu_k, is_v));
               for (uint8_t& x : bytes) x = static_cast<uint8_t>(x << 4 | x >> 4);
               at = t.put(bytes);
             }
           }),
           {"kv_dtype: nvfp4"},
           "the two numbers of a byte of K and V are exchanged"},
          {"fp4_k_descale_ignored",
           "the descale of K is not applied",
           {kFp4Pages},
           with_params([](Tamper& t, AttentionParams& p) { p.k_descale = t.put(std::vector<float>{1.0f}); }),
           {},
           "descales of K are not applied"},
          {"fp4_v_descale_ignored",
           "the descale of V is not applied",
           {kFp4Pages},
           with_params([](Tamper& t, AttentionParams& p) { p.v_descale = t.put(std::vector<float>{1.0f}); }),
           {},
           "descales of V are not applied"}};
}

std::vector<Fault> latent_caches() {
  return {{"ds_mla_scales_ignored",
           "latents in e4m3 are taken without the scales of their blocks",
           {kDsMlaPages},
           with_latent_rows([](LatentRow r) { std::fill_n(r.scales, r.blocks, 1.0f); }),
           {"kv_dtype: fp8_ds_mla"},
           "scales of blocks of channels are not applied"},
          {"ds_mla_scale_of_the_next_block",
           "a block of 128 channels has the scale of its neighbour",
           {kDsMlaPages},
           with_latent_rows([](LatentRow r) { std::rotate(r.scales, r.scales + 1, r.scales + r.blocks); }),
           {},
           "the scales of their neighbours"},
          {"ds_mla_one_scale_for_the_row",
           "all channels of a row have the scale of its first block",
           {kDsMlaPages},
           with_latent_rows([](LatentRow r) { std::fill_n(r.scales, r.blocks, r.scales[0]); }),
           {},
           "the scale of the first"},
          {"ds_mla_scales_of_row_0",
           "all rows of a page have the scales of its first",
           {kDsMlaPages},
           with_params([](Tamper&, AttentionParams& p) {
             p.k_block_scale_stride_token = p.v_block_scale_stride_token = 0;
           }),
           {},
           "the first token of their page"},
          {"ds_mla_tail_left_out",
           "the rotary part of K is not multiplied",
           {kDsMlaPages},
           with_latent_rows([](LatentRow r) { std::fill_n(r.tail, r.tail_channels, uint16_t{0}); }),
           {},
           "channels of K behind head_dim_v are left out"},
          {"ds_mla_tail_read_as_e4m3",
           "the rotary part of K is read as e4m3",
           {kDsMlaPages},
           with_latent_rows([](LatentRow r) {
             std::vector<uint16_t> read;
             for (int c = 0; c < r.tail_channels; ++c)
               read.push_back(float_to_bf16(e4m3_to_float(reinterpret_cast<uint8_t*>(r.tail)[c])));
             std::ranges::copy(read, r.tail);
           }),
           {"kv_dtype: fp8_ds_mla"}}};
}

}  // namespace

FaultClass block_scale_faults() { return {"scales of blocks", joined({fp4_caches(), latent_caches()})}; }

}  // namespace attnbench
