// The batch grammar: any text is read, or refused with a place inside it. A batch that was read is written
// back as a spec with the same meaning; a spec with braces stands for several.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "harness/config/batch_product.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace attnbench;
  const std::string_view spec(reinterpret_cast<const char*>(data), size);
  try {
    for (const std::vector<SeqLen>& seqs : parse_batch_product(spec)) {
      fuzz::require(parse_batch_spec(format_batch_spec(seqs)) == seqs,
                    "a formatted spec reads back as itself");
    }
  } catch (const BatchSpecError& e) {
    fuzz::require(e.offset <= size, "the place of an error lies in the spec");
    fuzz::require(e.what()[0] != '\0', "an error says something");
  }
  return 0;
}
