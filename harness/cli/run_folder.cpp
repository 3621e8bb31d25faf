#include "harness/cli/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <iterator>
#include <string_view>

#include "harness/cases/cost.h"
#include "harness/cli/usage_error.h"
#include "harness/gigabytes.h"
#include "harness/interop/dump.h"
#include "harness/report/formats.h"
#include "harness/results/json.h"
#include "harness/results/text.h"

namespace attnbench::cli {

namespace fs = std::filesystem;

void check_space(const fs::path& dir, std::size_t runs) {
  std::error_code ec;
  const auto space = fs::space(dir, ec);
  // A record takes at least 2 KB, in the journal and again in results.json.
  const auto needed = 2 * 2048 * static_cast<std::uintmax_t>(runs);
  if (ec || space.available >= needed) return;
  throw FileError(fmt::format("{}: error: {} KB are free, and {} runs need {} KB at the least", dir.string(),
                              space.available / 1024, runs, needed / 1024));
}

void prepare_dump(const std::string& dir, const std::vector<WorkItem>& work, const SessionOptions& options) {
  if (dir.empty() || work.empty()) return;
  if (options.check == CheckMode::kOff)
    throw UsageError("--dump writes the launch that is checked; drop --check off");
  if (work.size() > 1) {
    throw UsageError(fmt::format(
        "--dump writes one case on one kernel, and {} are given: add it to the line that reproduces a failure",
        work.size()));
  }
  const Case& item = *work.front().item;
  const double bytes = cost_of(item).device_bytes;
  constexpr double kMost = 2e9;
  const std::string why =
      item.params.expect_refused       ? "it expects a refusal, and no outputs"
      : item.params.path == Path::kDcp ? "its keys lie on several devices: set path=one_call"
      : bytes > kMost ? fmt::format("its tensors take {}, and at most {} are written: take a smaller batch",
                                    gigabytes(bytes), gigabytes(kMost))
                      : "";
  if (!why.empty()) throw UsageError(fmt::format("--dump: {}: {}", item.id, why));
  if (std::error_code ec; fs::exists(dir, ec) && !fs::is_empty(dir, ec) && !ec)
    throw UsageError(fmt::format("--dump {}: it exists and is not empty; name a new folder", dir));
  make_folder(dir);
  check_writable(fs::path(dir) / kDumpScript);
}

std::string dump_text(const std::string& dir, const std::vector<Record>& records) {
  const fs::path script = fs::path(dir) / kDumpScript;
  std::error_code ec;
  if (!dir.empty())
    return fs::exists(script, ec)
               ? fmt::format("dump: python {} prints the worst elements\n", shell_word(script.string()))
               : fmt::format("dump: {} lacks files; the case's reason says why\n", one_line(dir));
  const auto failed = [](const Record& r) { return r.status == Status::kFail && !r.repro.empty(); };
  return std::ranges::any_of(records, failed)
             ? "arrays: add --dump DIR to a line above for inputs, outputs and expected outputs as .npy\n"
             : "";
}

std::vector<fs::path> rescue(const FileError& e, const fs::path& dir, const Journal& journal,
                             const RunOptions& o, const RunContext& context,
                             const std::vector<Record>& records) {
  const std::string held = fmt::format("{} of {} records", records.size(), context.planned);
  if (!journal.vanished()) {
    const std::string file = (dir / "journal.jsonl").string();
    if (std::string_view(e.what()).starts_with(file)) throw e;  // says it itself
    throw FileError(fmt::format("{}; {} are in {}: make room, then continue with --resume {}", e.what(), held,
                                file, o.folder_to_resume(dir)));
  }
  std::string lines;
  for (const Record& r : records) lines += journal_line(r);
  try {
    const fs::path other =
        make_new_folder(fs::temp_directory_path() / fs::absolute(dir).lexically_normal().filename());
    write_file_atomically(other / "journal.jsonl", lines);
    auto paths = write_reports(other, o.formats, context, records);
    const bool all = std::ssize(records) == context.planned || o.is_turn();
    std::cerr << error_line(fmt::format("{}; {} are not there, but in {}{}", e.what(), held, other.string(),
                                        all ? "" : ", and --resume continues from it"))
              << "\n";
    return paths;
  } catch (const std::exception& again) {  // also if there is no folder for temporary files
    throw FileError(fmt::format("{}; {} are lost with the folder: {}", e.what(), held, again.what()));
  }
}

}  // namespace attnbench::cli
