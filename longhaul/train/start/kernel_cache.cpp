#include "longhaul/train/start/kernel_cache.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/agree.h"

namespace longhaul::train {

int64_t copy_kernels(const fs::path& from, const fs::path& to) {
  int64_t copied = 0;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(from)) {
      if (entry.path().extension() != ".neff" || !entry.is_regular_file()) continue;
      const fs::path wanted = to / fs::relative(entry.path(), from);
      if (fs::exists(wanted)) continue;
      fs::create_directories(wanted.parent_path());
      write_text_atomic(wanted, MappedFile(entry.path()).text());
      ++copied;
    }
  } catch (const fs::filesystem_error& error) {
    fail_input("run.compile_cache_from",
               "the kernels of {} cannot be copied to {}: {}; make room there, or name "
               "another folder in run.compile_cache_dir",
               from.string(), to.string(), error.what());
  }
  return copied;
}

void fill_kernel_cache(const RunConfig& config, comm::Communicator& world,
                       const comm::Communicator& node, const objects::Access& objects,
                       system::Logger& log) {
  const RunSection& run = config.run;
  if (run.compile_cache_from.empty()) return;
  int64_t copied = 0;
  comm::do_and_meet(
      world,
      [&] {
        if (node.rank() > 0) return;
        copied =
            copy_kernels(objects.readable(run.compile_cache_from), run.compile_cache_dir);
      },
      [&] { objects.store()->stop(); });
  log.info("{} from {}, which {} lacked", counted(copied, "kernel"),
           run.compile_cache_from.string(), run.compile_cache_dir.string());
}

}  // namespace longhaul::train
