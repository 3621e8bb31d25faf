#include "harness/config/keys.h"

#include <fmt/format.h>

#include "harness/config/batch_spec.h"
#include "harness/config/captured.h"
#include "harness/config/key_rows.h"

namespace attnbench {
namespace key_rows {
namespace {

/// Conventions of LSEs.
Rows lse_keys() {
  return {
      word_key<bool>("lse_log", "base of all LSEs that a launch reads and writes: e or 2", &C::lse_base2,
                     {{"natural", false}, {"base2", true}})
          .when(has_lse)
          .labelled(label("/lse-base2", [](P p) { return p.lse_base2; }))
          .needing(kLseBase2),
      word_key<bool>("out_lse_layout", "order of the written LSE, (head, token) or (token, head)",
                     &C::out_lse_token_major, {{"head_major", false}, {"token_major", true}})
          .when(has_lse)
          .labelled(label("/out_lse-token_major", [](P p) { return p.out_lse_token_major; }))
          .needing(kLseTokenMajor),
  };
}

/// What is expected of the kernel.
Rows refusal_keys() {
  return {
      word_key<bool>(
          "expect",
          "`refused`: the case passes if the kernel refuses it, and fails otherwise. The record keeps the "
          "kernel's reason. Nothing is timed",
          &C::expect_refused, {{"result", false}, {"refused", true}})
          .unified([](C& p) { p.expect_refused = p.expect_refused || p.bad_launch != BadLaunch::kNone; })
          .labelled(label("/refused", [](P p) { return p.expect_refused; })),
      word_key(
          "bad_launch",
          "a launch that [contradicts the contract](README.md#expected-refusals); implies `expect: refused`",
          &C::bad_launch, kBadLaunchNames)
          .labelled("-"),
  };
}

Rows last_keys() {
  return {
      batch_key()
          .unified([](C& p) {
            // How many keys a state stands for does not matter, nor how many queries a moved sequence has.
            for (SeqLen& s : p.seqs) {
              if (is_merge(p)) s.k = s.q;
              if (is_move(p)) s.q = 0;
            }
          })
          .labelled([](P p) {
            return p.served ? fmt::format("/{}-{}", p.served->label(), batch_label(p.seqs))
                            : "/" + batch_label(p.seqs);
          })
          .always_written(),
      word_key("data", "distribution of input values; it decides which faults can be seen", &C::data,
               kProfileNames)
          .unified([](C& p) {  // peaked changes q only
            const bool no_q = is_move(p) || (is_append(p) && p.query_out == QueryOut::kNone);
            if (no_q && p.data == Profile::kPeaked) p.data = Profile::kNormal;
            if ((is_merge(p) || is_backward(p)) && p.data == Profile::kCorners) p.data = Profile::kNormal;
          })
          .labelled([](P p) {
            if (p.captured) return fmt::format("/captured{}", p.captured->digest());
            return p.data == Profile::kNormal ? "" : fmt::format("/{}", profile_name(p.data));
          })
          .reported([](Json& j, P p) { j["data"] = p.captured ? "captured" : profile_name(p.data); }),
      bool_key("allow_short_kv",
               "accepts sequences with more queries than keys under a causal mask; their first queries see "
               "nothing",
               &C::allow_short_kv)
          .when(attends),
  };
}

Rows make_keys() {
  Rows keys = {
      word_key(
          "op",
          "what is computed. `kv_append` writes new keys and values into a paged cache; `merge_states` "
          "merges partial states (O and LSE over parts of the keys); `attention_backward` computes the "
          "gradients of q, K, V and sinks from O, LSE and dO; `kv_move` copies blocks of a paged cache or "
          "gathers rows from it",
          &C::op, kOpNames)
          .labelled([](P p) { return std::string(op_name(p.op)); })
          .always_written(),
  };
  for (Rows (*rows)() :
       {memory_keys, shape_keys, descale_keys, mask_keys, score_keys, append_keys, kv_append_keys, call_keys,
        move_keys, merge_keys, lse_keys, refusal_keys, last_keys}) {
    for (SweepKey& key : rows()) keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace
}  // namespace key_rows

SweepKey SweepKey::labelled(const char* before) && {
  label = [before, text = text, is_default = is_default](Params p) {
    if (is_default(p)) return std::string();
    const std::string value = text(p);
    return value == "true" ? std::string(before) : before + value;
  };
  return std::move(*this);
}

SweepKey SweepKey::needing(uint64_t bits) && {
  features = [bits, is_default = is_default](Params p) { return is_default(p) ? uint64_t{0} : bits; };
  return std::move(*this);
}

const std::vector<SweepKey>& sweep_keys() {
  static const std::vector<SweepKey> keys = key_rows::make_keys();
  return keys;
}

const SweepKey* find_sweep_key(std::string_view name) {
  for (const SweepKey& key : sweep_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::vector<std::string> sweep_key_names(const std::vector<std::string>& more) {
  std::vector<std::string> names;
  for (const SweepKey& key : sweep_keys()) names.push_back(key.name);
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

uint64_t features_of(const CaseParams& params) {
  uint64_t features = 0;
  for (const SweepKey& key : sweep_keys()) {
    if (key.features && key.applies(params)) features |= key.features(params);
  }
  return features;
}

nlohmann::ordered_json reported_params(const CaseParams& params) {
  nlohmann::ordered_json j;
  for (const SweepKey& key : sweep_keys()) key.report(j, params);
  return j;
}

}  // namespace attnbench
