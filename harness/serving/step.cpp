#include "harness/serving/step.h"

namespace attnbench {

void add_step(Digest& digest, const Step& step) {
  for (const ScheduledSequence& s : step.sequences) {
    digest.add_word(static_cast<uint64_t>(s.request));
    digest.add_bytes(s.query_tokens);
    digest.add_bytes(s.context_tokens);
    digest.add_bytes(s.decode ? 1 : 0);
    for (const int32_t block : s.block_table) digest.add_bytes(block);
  }
}

}  // namespace attnbench
