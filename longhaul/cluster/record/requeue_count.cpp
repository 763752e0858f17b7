#include "longhaul/cluster/record/requeue_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>

#include "longhaul/base/process.h"
#include "longhaul/cluster/names.h"
#include "longhaul/cluster/record/record_file.h"
#include "longhaul/run/files.h"

namespace longhaul::cluster {
namespace {

constexpr int kMostInVain = 20;
/// The first two requeues do not wait: a node or two may have been lost.
constexpr int kAtOnce = 2;
constexpr double kFirstWait = 30.0;
constexpr double kLongestWait = 1800.0;
/// The most requeues for reasons that a later start of the job will hardly remove.
constexpr int kMostUnmended = 5;
constexpr double kFirstUnmendedWait = 60.0;

constexpr NamesOf<RequeueReason, 7> kReasonNames{
    {"nodes", "signal", "host", "done", "storage", "crash", "unknown"}};

/// Returns whether the reason will probably be gone when the job starts again.
bool queue_mends(RequeueReason reason) { return reason < RequeueReason::Storage; }

struct RequeueRecord {
  std::string job;
  int64_t checkpoint = -1;
  int in_vain = 0;        ///< requeues in a row without a newer checkpoint
  int unmended = 0;       ///< requeues among these for a reason that hardly goes away
  std::string note = {};  ///< the supervisor's reason for the next requeue
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RequeueRecord, job, checkpoint, in_vain,
                                                unmended, note)

RecordFile requeues_file(const fs::path& run_dir) {
  return {run_dir / run::kRequeuesFile, "record of requeues"};
}

/// Returns the job's record, or a new one if none is kept for this job.
RequeueRecord requeues_of(const fs::path& run_dir, const std::string& job) {
  return requeues_file(run_dir).read_of<RequeueRecord>(job).value_or(
      RequeueRecord{.job = job});
}

double wait_of(double first, int number) {
  return std::min(kLongestWait, first * std::pow(2.0, number - 1));
}

RequeueDecision judge_requeue(const RequeueRecord& record, RequeueReason reason) {
  RequeueDecision decision;
  const bool mends = queue_mends(reason);
  const int limit = mends ? kMostInVain : kMostUnmended;
  const int count = mends ? record.in_vain : record.unmended;
  if (!mends) {
    decision.wait_seconds = wait_of(kFirstUnmendedWait, count);
  } else if (count > kAtOnce) {
    decision.wait_seconds = wait_of(kFirstWait, count - kAtOnce);
  }
  if (count > limit || record.in_vain > kMostInVain) {
    decision.allowed = false;
    decision.reason = fmt::format(
        "job {} went back to the queue {} times without a newer checkpoint, now for "
        "'{}': correct the problem that its log names, then submit the run again",
        record.job, count > limit ? limit : kMostInVain, reason_name(reason));
  }
  return decision;
}

}  // namespace

std::string describe_reason(RequeueReason reason) {
  constexpr std::array<const char*, 7> kWords = {
      "too few nodes are left",
      "a signal, or the time limit is near",
      "the machine of the batch script or of the supervisor is lost",
      "the run is done, and the job, which lost its script, is requeued to end as "
      "completed",
      "the run's file system refuses an operation that a start needs",
      "the supervisor ended several times without giving a reason",
      "the supervisor asked for it without giving a reason"};
  return fmt::format("{} ({})", kWords.at(static_cast<size_t>(reason)),
                     reason_name(reason));
}

const char* reason_name(RequeueReason reason) { return kReasonNames.of(reason); }

std::optional<RequeueReason> requeue_reason(const std::string& name) {
  return kReasonNames.find(name);
}

int requeues_in_vain(const fs::path& run_dir, const std::string& job,
                     int64_t newest_checkpoint) {
  if (job.empty()) return 0;
  try {
    const RequeueRecord record = requeues_of(run_dir, job);
    return newest_checkpoint > record.checkpoint ? 0 : record.in_vain;
  } catch (const std::exception&) {
    return 0;
  }
}

void note_requeue_reason(const fs::path& run_dir, const std::string& job,
                         RequeueReason reason) {
  if (job.empty()) return;
  try {
    RequeueRecord record = requeues_of(run_dir, job);
    record.note = reason_name(reason);
    requeues_file(run_dir).replace(record);
  } catch (const std::exception&) {
    // The requeue itself will fail to be counted for the same reason. count_requeue()
    // handles that.
  }
}

RequeueDecision count_requeue(const fs::path& run_dir, const std::string& job,
                              int64_t newest_checkpoint,
                              std::optional<RequeueReason> told) {
  RequeueReason reason = told.value_or(RequeueReason::Unknown);
  bool event_written = false;
  RequeueRecord record;
  try {
    record = requeues_of(run_dir, job);
    if (!told) reason = requeue_reason(record.note).value_or(reason);
    event_written = !told && !record.note.empty() && reason != RequeueReason::Signal;
    record.note.clear();
    if (newest_checkpoint > record.checkpoint) record.in_vain = record.unmended = 0;
    ++record.in_vain;
    if (!queue_mends(reason)) ++record.unmended;
    record.checkpoint = std::max(record.checkpoint, newest_checkpoint);
    requeues_file(run_dir).replace(record);
  } catch (const std::exception&) {
    // The job goes back into the queue even without a record, but not for ever. The disk
    // that takes no record may be the reason why the job goes back.
    record = {.job = job, .unmended = static_cast<int>(job_requeues()) + 1};
  }
  RequeueDecision decision = judge_requeue(record, reason);
  decision.why = reason;
  decision.event_written = event_written;
  return decision;
}

}  // namespace longhaul::cluster
