#include "longhaul/cluster/record/requeue_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>

#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/run/files.h"

namespace longhaul::cluster {
namespace {

constexpr int kMostInVain = 20;
/// A lost node or two are followed at once.
constexpr int kAtOnce = 2;
constexpr double kFirstWait = 30.0;
constexpr double kLongestWait = 1800.0;
/// Of what a place in the queue hardly mends, from the first on.
constexpr int kMostUnmended = 5;
constexpr double kFirstUnmendedWait = 60.0;

struct ReasonName {
  RequeueReason reason;
  const char* name;
  bool queue_mends;
};
constexpr std::array kReasons = {ReasonName{RequeueReason::Nodes, "nodes", true},
                                 ReasonName{RequeueReason::Signal, "signal", true},
                                 ReasonName{RequeueReason::Host, "host", true},
                                 ReasonName{RequeueReason::Done, "done", true},
                                 ReasonName{RequeueReason::Storage, "storage", false},
                                 ReasonName{RequeueReason::Crash, "crash", false},
                                 ReasonName{RequeueReason::Unknown, "unknown", false}};

const ReasonName& entry_of(RequeueReason reason) {
  return *std::ranges::find(kReasons, reason, &ReasonName::reason);
}

struct RequeueRecord {
  std::string job;
  int64_t checkpoint = -1;
  int in_vain = 0;   ///< requeues in a row that brought no newer checkpoint
  int unmended = 0;  ///< of them, those for what the queue hardly mends
  std::string note;  ///< the supervisor's reason for the next
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RequeueRecord, job, checkpoint, in_vain,
                                                unmended, note)

fs::path requeues_file(const fs::path& run_dir) { return run_dir / kRequeuesFile; }

RequeueRecord read_record(const fs::path& path, const std::string& job) {
  RequeueRecord record;
  if (fs::exists(path)) {
    record = parse_json(read_text(path, 1 << 16), path.string()).get<RequeueRecord>();
  }
  if (record.job != job) record = {};
  record.job = job;
  return record;
}

void write_record(const fs::path& path, const RequeueRecord& record) {
  make_directories_durable(path.parent_path());
  write_text_durable(path, json_text(Json(record)));
}

double wait_of(double first, int number) {
  return std::min(kLongestWait, first * std::pow(2.0, number - 1));
}

RequeueDecision judge_requeue(const RequeueRecord& record, RequeueReason reason) {
  RequeueDecision decision;
  const bool mends = entry_of(reason).queue_mends;
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
        "'{}': "
        "mend what its log tells of, then submit the run again",
        record.job, count > limit ? limit : kMostInVain, reason_name(reason));
  }
  return decision;
}

}  // namespace

const char* reason_name(RequeueReason reason) { return entry_of(reason).name; }

std::optional<RequeueReason> requeue_reason(const std::string& name) {
  for (const ReasonName& known : kReasons) {
    if (name == known.name) return known.reason;
  }
  return std::nullopt;
}

int requeues_in_vain(const fs::path& run_dir, const std::string& job,
                     int64_t newest_checkpoint) {
  if (job.empty()) return 0;
  try {
    const RequeueRecord record = read_record(requeues_file(run_dir), job);
    return newest_checkpoint > record.checkpoint ? 0 : record.in_vain;
  } catch (const std::exception&) {
    return 0;
  }
}

void note_requeue_reason(const fs::path& run_dir, const std::string& job,
                         RequeueReason reason) {
  if (job.empty()) return;
  try {
    RequeueRecord record = read_record(requeues_file(run_dir), job);
    record.note = reason_name(reason);
    write_record(requeues_file(run_dir), record);
  } catch (const std::exception&) {
    // Told of where the requeue is counted, which cannot be either.
  }
}

RequeueDecision count_requeue(const fs::path& run_dir, const std::string& job,
                              int64_t newest_checkpoint,
                              std::optional<RequeueReason> told) {
  const fs::path path = requeues_file(run_dir);
  RequeueReason reason = told.value_or(RequeueReason::Unknown);
  RequeueRecord record;
  try {
    record = read_record(path, job);
    if (!told) reason = requeue_reason(record.note).value_or(reason);
    record.note.clear();
    if (newest_checkpoint > record.checkpoint) record.in_vain = record.unmended = 0;
    ++record.in_vain;
    if (!entry_of(reason).queue_mends) ++record.unmended;
    record.checkpoint = std::max(record.checkpoint, newest_checkpoint);
    write_record(path, record);
  } catch (const std::exception&) {
    // The way back into the queue is worth more, but not for ever: a disk that takes no
    // record may be what the job goes back for.
    record = {};
    record.job = job;
    record.unmended = static_cast<int>(job_requeues()) + 1;
  }
  return judge_requeue(record, reason);
}

}  // namespace longhaul::cluster
