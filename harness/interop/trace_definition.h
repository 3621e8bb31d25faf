// A definition of a trace: what is computed, and with which mask. For flashinfer_trace.cpp only.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/interop/trace_json.h"

namespace attnbench::trace {

/// A workload that is left out; what() is the reason by which it is counted.
struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What attnbench knows of an op type.
struct OpType {
  const char* name;
  std::vector<std::string> constants;  ///< axes that must be constant
  std::vector<std::string> axes;       ///< other axes
  std::vector<std::string> tensors;    ///< inputs of numbers: q, K and V
  std::vector<std::string> others;     ///< other inputs

  bool knows_input(const std::string& input) const;
};

/// Which keys a query sees. kTopLeft: the first query sees the first key only; kCausal: the last query sees the last key.
enum class TraceMask { kNone, kCausal, kTopLeft };

struct Definition {
  std::string why_skipped;  ///< empty: attnbench knows all of it
  const OpType* op = nullptr;
  std::map<std::string, int64_t> constants;
  std::string dtype;  ///< "bf16"
  TraceMask mask = TraceMask::kNone;
  bool paged = false, mla = false, prefill = false, hnd = false;
  std::set<std::string> optional;  ///< inputs that a workload need not bind

  int64_t constant(const char* name) const { return constants.at(name); }
};

/// The mask by the definition's description, tags and reference code; its name does not count. Throws Skipped, if they do
/// not say it or contradict each other.
TraceMask mask_of(const Value& definition);

/// Reads a definition. Throws Skipped where attnbench does not know all of it, and TraceError.
void read_definition(const Value& root, Definition& d);

}  // namespace attnbench::trace
