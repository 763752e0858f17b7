#include "longhaul/cluster/record/restart_record.h"

#include <fmt/format.h>

#include <exception>

#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/run/files.h"

namespace longhaul::cluster {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RestartCounts, restarts, same, without_progress,
                                   furthest, on_node)
/// What decides whether the next fault is the same, besides its kind.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Fault, node, step, temporary)

namespace {

constexpr uint64_t kMostRecordBytes = uint64_t{1} << 16;

fs::path restarts_file(const fs::path& run_dir) { return run_dir / kRestartsFile; }

FaultKind fault_kind(const std::string& name) {
  for (const FaultKind kind :
       {FaultKind::Settings, FaultKind::Killed, FaultKind::Error,
        FaultKind::Communication, FaultKind::Hang, FaultKind::Node}) {
    if (name == fault_name(kind)) return kind;
  }
  return FaultKind::Launcher;
}

}  // namespace

RestartCounts read_restarts(const fs::path& run_dir, const std::string& job,
                            Logger& log) {
  const fs::path path = restarts_file(run_dir);
  try {
    if (job.empty() || !fs::exists(path)) return {};
    const Json json = read_json(path, kMostRecordBytes);
    if (json.at("job").get<std::string>() != job) return {};
    auto counts = json.get<RestartCounts>();
    const Json& before = json.at("before");
    counts.before = before.get<Fault>();
    counts.before->kind = fault_kind(before.at("kind").get<std::string>());
    return counts;
  } catch (const std::exception& problem) {
    log.warning(fmt::format("{}: {}; the job's restarts are counted from the beginning",
                            path.string(), to_error(problem).what()));
    return {};
  }
}

void write_restarts(const fs::path& run_dir, const std::string& job,
                    const RestartCounts& counts, Logger& log) {
  if (job.empty() || !counts.before) return;
  const fs::path path = restarts_file(run_dir);
  try {
    make_directories_durable(path.parent_path());
    Json json = counts;
    json["job"] = job;
    json["before"] = *counts.before;
    json["before"]["kind"] = fault_name(counts.before->kind);
    write_text_durable(path, json_text(json));
  } catch (const std::exception& problem) {
    log.warning(
        fmt::format("{}: {}; another supervisor of this job would count its "
                    "restarts from the beginning",
                    path.string(), to_error(problem).what()));
  }
}

}  // namespace longhaul::cluster
