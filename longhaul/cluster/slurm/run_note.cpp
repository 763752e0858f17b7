#include "longhaul/cluster/slurm/run_note.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/run/run_past.h"

namespace longhaul::cluster {
namespace {

/// Runs of one job may write their notes at the same time.
constexpr int kTries = 3;
constexpr size_t kIdentityDigits = 32;

/// Returns what stands before the run's identity in a comment. A job may train several
/// runs, so it holds a hash of the run's directory, whose own name may not fit into a
/// comment.
std::string mark_of(const fs::path& run_dir) {
  const std::string place = fs::absolute(run_dir).lexically_normal().string();
  return fmt::format("longhaul:{}=", hash_hex(place).substr(0, 16));
}

/// Returns the run's identity behind the last `mark` in a comment; empty if there is
/// none.
std::string run_in(const std::string& comment, const std::string& mark) {
  const size_t place = comment.rfind(mark);
  if (place == std::string::npos) return {};
  const std::string run = comment.substr(place + mark.size(), kIdentityDigits);
  return run::is_identity(run) ? run : std::string();
}

}  // namespace

void note_run(const SlurmClient& slurm, const std::string& job, const fs::path& run_dir,
              const std::string& run) {
  const std::string mark = mark_of(run_dir);
  for (int i = 0; i < kTries; ++i) {
    std::string comment = slurm.query_comment(job);
    const std::string noted = run_in(comment, mark);
    if (noted == run) return;
    if (noted.empty()) {
      if (!comment.empty()) comment += " ";
      comment += mark;
      comment += run;
    } else {
      comment.replace(comment.rfind(mark) + mark.size(), noted.size(), run);
    }
    slurm.set_comment(job, comment);
  }
  if (run_in(slurm.query_comment(job), mark) == run) return;
  fail_temporary("slurm",
                 "the comment of job {} does not keep what is written there; do others "
                 "write it as well?",
                 job);
}

std::string missing_run(const SlurmClient& slurm, const std::string& job,
                        const fs::path& run_dir) {
  const auto record = run::RunPast::read(run_dir);
  if (record && record->loads > 0) return {};
  const std::string noted = run_in(slurm.query_comment(job), mark_of(run_dir));
  const bool here = record && (record->run == noted || record->has_given_up(noted));
  return here ? std::string() : noted;
}

}  // namespace longhaul::cluster
