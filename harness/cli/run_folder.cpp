#include "harness/cli/run_folder.h"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <iostream>
#include <iterator>
#include <string_view>

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
