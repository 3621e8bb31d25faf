// The tensors of a kv_append.
#include <algorithm>
#include <numeric>

#include "harness/config/keys.h"
#include "harness/ops/kv_append/tensors_scales.h"
#include "harness/ops/tensors_ops.h"
#include "harness/tensors/shared_tensors.h"
#include "kernels/contract/philox.h"

namespace attnbench::ops::kv_append {
namespace {

constexpr RowOwner kPoison{-1, -1};
constexpr int32_t kJunkPosition = 0x7ffffff0;
constexpr uint32_t kSlotStream = 0xdu << 24;  // differs from every Tensor's (values.h)

ScaleParams scale_shape(const CaseParams& p, bool is_v, bool padded) {
  ScaleParams s{};
  if (p.computes_scales(is_v)) {
    set_strides(row_scale_strides(p, is_v, padded), s.stride_block, s.stride_token, s.stride_head);
  } else if (p.quantises(is_v)) {
    const GivenScaleStrides of = given_scale_strides(p, is_v, padded);
    s.given_stride_head = of.head;
    s.given_stride_channel = of.channel;
  }
  return s;
}

KvAppendParams shape_of(const CaseParams& p, bool padded) {
  KvAppendParams a{};
  a.features = features_of(p);
  a.num_heads_kv = p.num_heads_kv;
  a.head_dim = p.head_dim;
  a.head_dim_v = p.dim_v();
  a.dtype_in = p.dtype;
  if (p.query_out != QueryOut::kNone) {
    a.num_heads_q = p.num_heads_q;
    a.dtype_query_out = p.query_out == QueryOut::kE4m3 ? DType::kE4m3 : p.dtype;
    set_strides(token_strides(p.num_heads_q, p.head_dim, pad_if(padded, Pad::kQ)), a.query_stride_token,
                a.query_stride_head);
    set_strides(token_strides(p.num_heads_q, p.head_dim, pad_if(padded, Pad::kOut)), a.query_out_stride_token,
                a.query_out_stride_head);
  }
  a.dtype_k = p.type_of_k();
  a.dtype_v = p.type_of_v();
  a.block_size = p.block_size;
  set_strides(token_strides(p.num_heads_kv, p.head_dim, pad_if(padded, Pad::kNewK)), a.key_stride_token,
              a.key_stride_head);
  set_strides(token_strides(p.num_heads_kv, p.dim_v(), pad_if(padded, Pad::kNewV)), a.value_stride_token,
              a.value_stride_head);
  set_strides(kv_strides(p, false, padded), a.k_stride_block, a.k_stride_token, a.k_stride_head);
  set_strides(kv_strides(p, true, padded), a.v_stride_block, a.v_stride_token, a.v_stride_head);
  for (const SeqLen& len : p.seqs) a.num_tokens += len.q;
  a.num_tokens += p.padding_tokens;
  a.rotary = rotary_shape(p);
  a.k_scale = scale_shape(p, false, padded);
  a.v_scale = scale_shape(p, true, padded);
  return a;
}

OpParams shape(const Case& c, bool padded) { return op_params(shape_of(c.params, padded)); }

/// Different slots of a pool, in a random order: i goes to (a i + b) mod n with a coprime to n.
class AnySlots {
 public:
  AnySlots(int64_t slots, uint64_t seed) : slots_(std::max<int64_t>(slots, 1)) {
    const Philox4 r = philox4x32(kSlotStream, 0, 0, 0, seed);
    at_ = r.x[0] % slots_;
    // About the golden section of the pool, so that neighbours are far apart.
    step_ = std::max<int64_t>(1, slots_ * 618 / 1000 + r.x[1] % 64);
    while (std::gcd(step_, slots_) != 1) ++step_;
    step_ %= slots_;
  }
  int64_t next() { return at_ = (at_ + step_) % slots_; }

 private:
  int64_t slots_, at_, step_;
};

/// Plans kv_append. New tokens are the last q of each sequence's k. Their slots hold poison before the
/// launch.
void plan_slots(const CaseParams& p, uint64_t seed, WorkloadPlan& plan) {
  const int64_t bs = p.block_size;
  plan.appended.assign(plan.kv_owners.size(), kPoison);
  const std::size_t batch = p.seqs.size();
  AnySlots slots(static_cast<int64_t>(plan.kv_owners.size()), seed);
  std::size_t padding_left = static_cast<std::size_t>(p.padding_tokens);
  const auto pad = [&](std::size_t n) {
    plan.slot_mapping.insert(plan.slot_mapping.end(), n, -1);
    plan.positions.insert(plan.positions.end(), n, kJunkPosition);
    // Padding has values of its own, because poison written over poison would not be seen.
    for (std::size_t i = 0; i < n; ++i) {
      plan.token_owners.push_back(
          {static_cast<int32_t>(batch), static_cast<int32_t>(plan.token_owners.size())});
    }
    padding_left -= n;
  };
  for (std::size_t b = 0; b < batch; ++b) {
    for (int32_t pos = p.seqs[b].k - p.seqs[b].q; pos < p.seqs[b].k; ++pos) {
      const int32_t block = plan.block_table[b * static_cast<std::size_t>(plan.block_table_stride) +
                                             static_cast<std::size_t>(pos / bs)];
      const int64_t slot = p.arbitrary_slots ? slots.next() : block * bs + pos % bs;
      // Another prompt of the step may share the row: it has one value, that of its owner.
      const auto seq = static_cast<int32_t>(b);
      const GivenBlocks::Row row = p.blocks ? p.blocks->owner(seq, pos) : GivenBlocks::Row{seq, pos};
      const RowOwner owner{row.seq, row.pos};
      plan.slot_mapping.push_back(slot);
      plan.token_owners.push_back(owner);
      plan.positions.push_back(pos);
      plan.appended[static_cast<std::size_t>(slot)] = owner;
      plan.kv_owners[static_cast<std::size_t>(slot)] = kPoison;
    }
    pad(std::min(padding_left, static_cast<std::size_t>(p.padding_tokens) / (2 * batch)));
  }
  pad(padding_left);
}

void plan(const Case& c, const LayoutVariant& variant, WorkloadPlan& plan) {
  plan_rows(c.params, c.seed, variant, plan);
  plan_slots(c.params, c.seed ^ variant.salt, plan);
}

void add_queries(Workload& w, const KvAppendParams& a) {
  const CaseParams& p = w.item().params;
  const std::vector<RowOwner>& tokens = w.plan().token_owners;
  w.add_tokens("query", Tensor::kQ, p.dtype, tokens, p.num_heads_q, p.head_dim,
               {a.query_stride_token, a.query_stride_head}, SignsOf::kQk, 0);
  w.add(
      "query_out", Role::kOutput,
      std::ssize(tokens) * a.query_out_stride_token * static_cast<int64_t>(dtype_size(a.dtype_query_out)),
      token_rows(SignsOf::kQk, a.dtype_query_out, p.num_heads_q, p.head_dim, p.num_heads_q / p.num_heads_kv));
  if (p.query_out == QueryOut::kE4m3)
    w.add_input("query_scale", std::vector<float>{query_scale_of(w.item())});
}

void add(Workload& w) {
  const Case& c = w.item();
  const CaseParams& p = c.params;
  const WorkloadPlan& plan = w.plan();
  const KvAppendParams a = shape_of(p, w.padded());
  w.add_cache("k_cache", false, Role::kState);
  if (!p.one_row) w.add_cache("v_cache", true, Role::kState);
  add_rotary_tables(w);
  if (p.rotary != Rotary::kNone && p.positions64) {
    w.add_input("positions", std::vector<int64_t>(plan.positions.begin(), plan.positions.end()));
  } else if (p.rotary != Rotary::kNone) {
    w.add_input("positions", plan.positions);
  }
  w.add_tokens("key", Tensor::kNewK, p.dtype, plan.token_owners, p.num_heads_kv, p.head_dim,
               {a.key_stride_token, a.key_stride_head}, SignsOf::kQk, 0);
  w.add_tokens("value", Tensor::kNewV, p.dtype, plan.token_owners, p.num_heads_kv, p.dim_v(),
               {a.value_stride_token, a.value_stride_head}, SignsOf::kV, 0);
  w.add_input("slot_mapping", plan.slot_mapping, {0});
  if (p.query_out != QueryOut::kNone) add_queries(w, a);
  for (const bool is_v : {false, true}) {
    if (const auto given = given_scales(c, is_v, w.padded()); !given.empty())
      w.add_input(is_v ? "v_scale" : "k_scale", given);
    if (!p.computes_scales(is_v)) continue;
    const auto bytes = static_cast<int64_t>(scales_before(c, plan, is_v, w.padded()).size() * sizeof(float));
    w.add(is_v ? "v_scales" : "k_scales", Role::kState, bytes, {.poisoned = false},
          [&w, is_v, bytes](void* to) {
            w.device().upload(to, scales_before(w.item(), w.plan(), is_v, w.padded()).data(), bytes);
          });
  }
}

void point(const Workload& w, OpParams& op) {
  KvAppendParams& a = op.kv_append;
  const CaseParams& p = w.item().params;
  a.num_blocks = w.plan().num_blocks;
  a.key = w.data("key");
  a.value = w.data("value");
  a.slot_mapping = w.data<int64_t>("slot_mapping");
  if (p.positions64) {
    a.positions64 = w.data<int64_t>("positions");
  } else {
    a.positions = w.data<int32_t>("positions");
  }
  a.query = w.data("query");
  a.query_out = w.data("query_out");
  a.query_scale = w.data<float>("query_scale");
  set_rotary_tables(w, a.rotary);
  a.k_cache = w.cache_base(false, w.data("k_cache"));
  a.v_cache = w.cache_base(true, w.data(p.one_row ? "k_cache" : "v_cache"));
  a.k_scale.given = w.data<float>("k_scale");
  a.v_scale.given = w.data<float>("v_scale");
  a.k_scale.computed = w.data<float>("k_scales");
  a.v_scale.computed = w.data<float>("v_scales");
}

HostOutputs download(const Workload& w) {
  HostOutputs h;
  h.k_cache = w.download_cache("k_cache");
  h.v_cache = w.download_cache("v_cache");
  h.k_scales = w.download<float>("k_scales");
  h.v_scales = w.download<float>("v_scales");
  h.out = w.download("query_out");
  return h;
}

void spoil(BadLaunch how, OpParams& op) {
  KvAppendParams& p = op.kv_append;
  if (how == BadLaunch::kFeature) p.features |= kNoFeature;
  if (how == BadLaunch::kDType) p.dtype_in = DType::kInt8;
  if (how == BadLaunch::kHeadDim) p.head_dim = 0;
  if (how == BadLaunch::kHeads) p.num_heads_kv = 0;
  if (how == BadLaunch::kBlockSize) p.block_size = 0;
  if (how == BadLaunch::kPointer) p.key = nullptr;
}

std::vector<Written> written(const OpParams& op) {
  const KvAppendParams& p = op.kv_append;
  std::vector<Written> out = {{p.k_cache, p.num_blocks * p.k_stride_block, p.dtype_k},
                              {p.v_cache, p.num_blocks * p.v_stride_block, p.dtype_v}};
  if (p.features & kOneRow) out.erase(out.begin());  // V begins the rows of both
  if (p.features & kQueryOut)
    out.push_back({p.query_out, p.num_tokens * p.query_out_stride_token, p.dtype_query_out});
  for (const ScaleParams* s : {&p.k_scale, &p.v_scale}) {
    if (s->computed) out.push_back({s->computed, p.num_blocks * s->stride_block, DType::kFp32});
  }
  return out;
}

}  // namespace

const TensorsOps kTensorsOps = {shape, plan, add, nullptr, point, download, spoil, written};

}  // namespace attnbench::ops::kv_append
