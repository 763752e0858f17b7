#include "longhaul/cluster/requeue_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "longhaul/base/json.h"

namespace longhaul::cluster {
namespace {

constexpr int kMostInVain = 20;
/// A lost node or two are followed at once.
constexpr int kAtOnce = 2;
constexpr double kFirstWait = 30.0;
constexpr double kLongestWait = 1800.0;

struct RequeueRecord {
  std::string job;
  int64_t checkpoint = -1;
  int in_vain = 0;  ///< requeues in a row that brought no newer checkpoint
};

RequeueRecord read_record(const fs::path& path, const std::string& job) {
  RequeueRecord record;
  record.job = job;
  if (!fs::exists(path)) return record;
  const Json json = parse_json(read_text(path, 1 << 16), path.string());
  if (json.value("job", "") != job) return record;
  record.checkpoint = json.value("checkpoint", int64_t{-1});
  record.in_vain = json.value("in_vain", 0);
  return record;
}

double wait_of(int in_vain) {
  if (in_vain <= kAtOnce) return 0.0;
  return std::min(kLongestWait, kFirstWait * std::pow(2.0, in_vain - kAtOnce - 1));
}

}  // namespace

RequeueDecision count_requeue(const fs::path& run_dir, const std::string& job,
                              int64_t newest_checkpoint) {
  RequeueDecision decision;
  const fs::path path = run_dir / "control" / "requeues.json";
  RequeueRecord record;
  try {
    record = read_record(path, job);
    record.in_vain = newest_checkpoint > record.checkpoint ? 1 : record.in_vain + 1;
    record.checkpoint = std::max(record.checkpoint, newest_checkpoint);
    make_directories_durable(path.parent_path());
    write_text_durable(path, Json{{"job", record.job},
                                  {"checkpoint", record.checkpoint},
                                  {"in_vain", record.in_vain}}
                                 .dump());
  } catch (const std::exception&) {
    return decision;  // the way back into the queue is worth more
  }
  decision.wait_seconds = wait_of(record.in_vain);
  if (record.in_vain > kMostInVain) {
    decision.allowed = false;
    decision.reason = fmt::format(
        "job {} went back to the queue {} times without a newer checkpoint: mend what "
        "its log tells of, then submit the run again",
        job, kMostInVain);
  }
  return decision;
}

}  // namespace longhaul::cluster
