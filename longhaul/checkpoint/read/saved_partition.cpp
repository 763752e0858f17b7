#include "longhaul/checkpoint/read/saved_partition.h"

#include <numeric>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/config/load.h"
#include "longhaul/layout/layout_description.h"
#include "longhaul/run/saved_settings.h"

namespace longhaul::checkpoint {
namespace {

/// Returns the checkpoints from which a start may go on, the best first; none where the
/// load will refuse them.
std::vector<fs::path> start_candidates(const RunConfig& config) {
  const fs::path dir = checkpoint_dir(config);
  ResumeFrom asked = config.checkpoint.resume;
  try {
    // A path says how a run begins that has no checkpoint of its own yet.
    if (asked.kind == ResumeFrom::Kind::Path && find_latest(dir)) asked = {};
    return resume_candidates(asked, dir);
  } catch (const InputError&) {
    return {};
  }
}

/// Returns the layers of the stages in a checkpoint, if a run with these settings keeps
/// them; else nothing.
std::vector<int64_t> kept_partition(const fs::path& path, const ParallelSection& now,
                                    const ModelDescription& model) {
  const Json state = read_state(path);
  const std::string settings = run::saved_settings(state);
  if (settings.empty()) return {};  // imported
  const RunConfig saved =
      parse_run_config(settings, (path / "state.json").string()).config;
  const ParallelSection& then = saved.parallel;
  if (then.pp != now.pp || then.virtual_stages != now.virtual_stages ||
      !then.partition.empty()) {
    return {};
  }
  auto partition = saved_partition(state.at("numerics"), saved, model);
  const int64_t layers = std::accumulate(partition.begin(), partition.end(), int64_t{0});
  // A start refuses the checkpoint of another model.
  if (layers != model.num_blocks()) partition.clear();
  return partition;
}

}  // namespace

std::vector<int64_t> saved_partition(const Json& numerics, const RunConfig& saved,
                                     const ModelDescription& model) {
  if (const auto found = numerics.find(kPartition); found != numerics.end()) {
    return found->get<std::vector<int64_t>>();
  }
  return layout::partition_by_average(saved, model);
}

std::vector<int64_t> partition_of_start(const RunConfig& config,
                                        const ModelDescription& model) {
  const ParallelSection& now = config.parallel;
  const bool may_keep = now.pp > 1 && now.partition.empty() &&
                        now.pp * now.virtual_stages <= model.num_blocks();
  if (!may_keep) return now.partition;
  for (const fs::path& path : start_candidates(config)) {
    try {
      return kept_partition(path, now, model);
    } catch (const InputError&) {
      continue;  // damaged: the start goes on from the next one
    }
  }
  return {};
}

}  // namespace longhaul::checkpoint
