#include "longhaul/cluster/record/restart_record.h"

#include "longhaul/cluster/record/record_file.h"
#include "longhaul/run/files.h"

namespace longhaul::cluster {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RestartCounts, restarts, same, without_progress,
                                   furthest, on_node)
// These fields and the fault's kind decide whether the next fault counts as the same
// fault.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Fault, node, step, temporary)

namespace {

RecordFile restarts_file(const fs::path& run_dir) {
  return {run_dir / run::kRestartsFile, "record of restarts"};
}

struct RestartRecord {
  RestartCounts counts;
};

void from_json(const Json& json, RestartRecord& record) {
  json.get_to(record.counts);
  record.counts.left_out = json.value("left_out", false);  // older supervisors have none
  const Json& before = json.at("before");
  record.counts.before = before.get<Fault>();
  record.counts.before->kind = kFaultNames.find(before.at("kind").get<std::string>())
                                   .value_or(FaultKind::Launcher);
}

}  // namespace

RestartCounts read_restarts(const fs::path& run_dir, const std::string& job,
                            system::Logger& log) {
  RestartCounts counts;
  try_record(log, "the job's restarts are counted from the beginning", [&] {
    const auto record = restarts_file(run_dir).read_of<RestartRecord>(job);
    if (record) counts = record->counts;
  });
  return counts;
}

void write_restarts(const fs::path& run_dir, const std::string& job,
                    const RestartCounts& counts, system::Logger& log) {
  if (job.empty() || !counts.before) return;
  Json json = counts;
  json["left_out"] = counts.left_out;
  json["job"] = job;
  json["before"] = *counts.before;
  json["before"]["kind"] = fault_name(counts.before->kind);
  try_record(log,
             "another supervisor of this job would count its restarts from the beginning",
             [&] { restarts_file(run_dir).replace(json); });
}

}  // namespace longhaul::cluster
