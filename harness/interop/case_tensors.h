// The tensors of a launch by their names and shapes in kernels/contract: what files of cases and of outputs hold.
#pragma once

#include <string>
#include <vector>

#include "harness/interop/safetensors.h"
#include "harness/tensors/workload.h"

namespace attnbench {

/// The inputs of a launch. They point into the workload, which must be dense. Caches that the launch changes are named
/// NAME_before where an output is named NAME. With `zeros` (attention and its gradients, cpu device), what must not be
/// read in them becomes 0.
std::vector<TensorView> input_tensors(Workload& workload, bool zeros);

/// An output that a launch of the case writes.
struct OutputTensor {
  std::string name;
  DType type;
  std::vector<int64_t> shape;
  void* data;
  std::size_t row_axis = 0;  ///< the dimension of packed rows
};
std::vector<OutputTensor> output_tensors(Workload& workload);

/// Where the packed rows of queries stand in the tensors of a file: those of captured tensors where they were captured,
/// others where the launch has them (empty).
struct FileRows {
  int64_t count = 0;
  std::vector<int64_t> of;  ///< by row of the launch; -1: none

  /// The shape of the tensor in the file.
  std::vector<int64_t> shape(const OutputTensor& t) const;
  /// Calls f(element of the launch, element of the file, count) for each run of elements that stand together.
  template <class F>
  void for_each_run(const OutputTensor& t, F&& f) const {
    const auto axis = t.shape.begin() + static_cast<std::ptrdiff_t>(t.row_axis);
    if (of.empty()) return f(int64_t{0}, int64_t{0}, element_count(t.shape));
    const int64_t outer = element_count({t.shape.begin(), axis}),
                  inner = element_count({axis + 1, t.shape.end()});
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t row = 0; row < *axis; ++row) {
        const int64_t from = of[static_cast<std::size_t>(row)];
        if (from >= 0) f((o * *axis + row) * inner, (o * count + from) * inner, inner);
      }
    }
  }
};
FileRows file_rows(const Workload& workload);

/// How safetensors names the type. Of e2m1x2, two numbers in a byte: U8.
Element element_for(DType t);

}  // namespace attnbench
