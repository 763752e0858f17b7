#include "longhaul/cluster/restart_record.h"

#include <fmt/format.h>

#include <exception>

#include "longhaul/base/json.h"
#include "longhaul/run/files.h"

namespace longhaul::cluster {
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

/// What decides whether the next fault is the same.
Json fault_to_json(const Fault& fault) {
  return {{"kind", fault_name(fault.kind)},
          {"node", fault.node},
          {"step", fault.step},
          {"temporary", fault.temporary}};
}

Fault fault_from_json(const Json& json) {
  Fault fault;
  fault.kind = fault_kind(json.at("kind").get<std::string>());
  json.at("node").get_to(fault.node);
  json.at("step").get_to(fault.step);
  json.at("temporary").get_to(fault.temporary);
  return fault;
}

}  // namespace

RestartCounts read_restarts(const fs::path& run_dir, const std::string& job,
                            Logger& log) {
  const fs::path path = restarts_file(run_dir);
  try {
    if (job.empty() || !fs::exists(path)) return {};
    const Json json = read_json(path, kMostRecordBytes);
    if (json.at("job").get<std::string>() != job) return {};
    RestartCounts counts;
    json.at("restarts").get_to(counts.restarts);
    json.at("same").get_to(counts.same);
    json.at("without_progress").get_to(counts.without_progress);
    json.at("furthest").get_to(counts.furthest);
    json.at("on_node").get_to(counts.on_node);
    counts.before = fault_from_json(json.at("before"));
    return counts;
  } catch (const std::exception& problem) {
    log.warning(fmt::format("{}: {}; the job's restarts are counted from the beginning",
                            path.string(), problem.what()));
    return {};
  }
}

void write_restarts(const fs::path& run_dir, const std::string& job,
                    const RestartCounts& counts, Logger& log) {
  if (job.empty() || !counts.before) return;
  const fs::path path = restarts_file(run_dir);
  try {
    make_directories_durable(path.parent_path());
    write_text_durable(path, Json{{"job", job},
                                  {"restarts", counts.restarts},
                                  {"same", counts.same},
                                  {"without_progress", counts.without_progress},
                                  {"furthest", counts.furthest},
                                  {"on_node", counts.on_node},
                                  {"before", fault_to_json(*counts.before)}}
                                 .dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (const std::exception& problem) {
    log.warning(
        fmt::format("{}: {}; another supervisor of this job would count its "
                    "restarts from the beginning",
                    path.string(), problem.what()));
  }
}

}  // namespace longhaul::cluster
