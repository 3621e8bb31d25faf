// A simulation of a server: what was asked, and what is said about it.
#pragma once

#include <cstdint>
#include <string>

#include "harness/cli/page_files.h"
#include "harness/config/serving_spec.h"
#include "harness/serving/scheduler.h"
#include "harness/serving/step_history.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attnbench::cli {

/// --columns of a command that reads a trace.
CLI::Option* add_columns_option(CLI::App& command, std::string& columns);

struct SimOptions {
  std::string source;  ///< a mix, or the file of a trace
  bool is_trace = false;
  ServingSpec server;    ///< without its steps; `simulate` puts the source into it
  int64_t requests = 0;  ///< at most; 0: all of a trace
  int32_t block_size = 16;
  PageFiles files;
};

/// What the scheduler does not know of the requests.
struct Asked {
  std::string description;  ///< of the mix or the trace
  int64_t requests = 0, prompt_tokens = 0, output_tokens = 0;
  int64_t skipped_lines = 0;
  std::string note;  ///< what the trace has and the simulation leaves out; empty: nothing
};

/// What the terminal and the page both have, and the plot.
StaticPage replay_page(const SimOptions& o, const Asked& asked, const Scheduler& s,
                       const StepHistory& history);
void print_replay(const SimOptions& o, const StaticPage& page, const StepHistory& history);
std::string replay_json(const SimOptions& o, const Asked& asked, const Scheduler& s,
                        const StepHistory& history);

}  // namespace attnbench::cli
