#include "longhaul/run/run_past.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/json_fields.h"
#include "longhaul/base/lenient_json.h"
#include "longhaul/run/events.h"
#include "longhaul/run/files.h"

namespace longhaul::run {
namespace {

constexpr size_t kIdentityDigits = 32;
constexpr uint64_t kLargestRecord = uint64_t{1} << 16;
constexpr const char* kAdvice =
    "restore the file, or remove it where the run's checkpoints are in place";

/// Returns whether a file is there. Throws where that cannot be found out.
bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return false;
  if (error) throw to_error(fs::filesystem_error("look at", path, error));
  return true;
}

std::string new_identity() {
  std::random_device source;
  std::string run;
  while (run.size() < kIdentityDigits) run += fmt::format("{:08x}", source());
  return run;
}

/// Returns whether a text may be an identity, or the name of a home.
bool is_identity(std::string_view text) {
  return text.size() == kIdentityDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string identity_of(const JsonFields& fields) {
  auto run = fields.get<std::string>("run");
  if (!is_identity(run))
    fields.fail(fmt::format("run '{}' is no identity of a run", run));
  return run;
}

/// Returns the name of a home; the empty text where the file has none.
std::string home_of(const JsonFields& fields, const char* key) {
  if (!fields.has(key)) return {};  // the file is of an older release
  auto home = fields.get<std::string>(key);
  if (!home.empty() && !is_identity(home)) {
    fields.fail(fmt::format("{} '{}' names no home of a run", key, home));
  }
  return home;
}

std::optional<Json> read_small(const fs::path& path) {
  if (!is_there(path)) return std::nullopt;
  return parse_json(read_text(path, kLargestRecord), path.string());
}

std::optional<std::string> read_identity(const fs::path& path) {
  const auto json = read_small(path);
  if (!json) return std::nullopt;
  return identity_of(JsonFields(*json, "checkpoint", path.string(), kAdvice));
}

/// Returns the step of the newest checkpoint that the events of a run leave.
std::optional<int64_t> newest_by_events(const fs::path& path) {
  std::optional<int64_t> newest;
  std::ifstream lines(path);
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) continue;
    const std::string kind = EventHead::read(line, first_bytes).kind;
    if (kind == CheckpointEvent::kKind) newest = integer_at(line, "step");
    const bool starts = kind == StartEvent::kKind;
    if (!newest || (!starts && kind != RollbackEvent::kKind)) continue;
    newest = std::min(*newest, integer_at(line, starts ? "step" : "to_step"));
    if (*newest == 0) newest.reset();
  }
  return newest;
}

}  // namespace

RunPast RunPast::begin() {
  RunPast record;
  record.run = new_identity();
  record.home = new_identity();
  return record;
}

RunPast RunPast::begin_anew() const {
  RunPast record = begin();
  if (!home.empty()) record.home = home;
  record.mirror_home = mirror_home;
  record.mirror_attempt = mirror_attempt;
  return record;
}

std::optional<RunPast> RunPast::read(const fs::path& run_dir) {
  const fs::path path = run_dir / kRunPastFile;
  const auto json = read_small(path);
  if (!json) {
    if (!is_there(run_dir / kEventsFile)) return std::nullopt;
    RunPast old = begin();
    old.newest = newest_by_events(run_dir / kEventsFile);
    return old;
  }
  const JsonFields fields(*json, "checkpoint", path.string(), kAdvice);
  RunPast record;
  record.run = identity_of(fields);
  record.loads = fields.count("loads");
  if (!fields.field("newest").is_null()) record.newest = fields.count("newest");
  record.checkpoints = fields.get<std::string>("checkpoints");
  record.home = home_of(fields, "home");
  record.mirror_home = home_of(fields, "mirror_home");
  if (!record.mirror_home.empty()) {
    record.mirror_attempt = fields.get<int>("mirror_attempt");
  }
  return record;
}

void RunPast::write(const fs::path& run_dir) const {
  Json json = {{"run", run}, {"loads", loads}, {"newest", nullptr}};
  if (newest) json["newest"] = *newest;
  json["checkpoints"] = checkpoints;
  json["home"] = home;
  json["mirror_home"] = mirror_home;
  json["mirror_attempt"] = mirror_attempt;
  write_text_atomic(run_dir / kRunPastFile, json_text(json) + "\n");
}

std::string RunPast::place_of(const fs::path& dir) {
  const std::string path = fs::absolute(dir).lexically_normal().string();
  return Json::parse(json_text(Json(path))).get<std::string>();
}

std::optional<int64_t> RunPast::newest_in(const fs::path& dir) const {
  return checkpoints == place_of(dir) ? newest : std::nullopt;
}

bool RunPast::misses_newest(const fs::path& dir) const {
  if (!newest) return false;
  const auto lacks = [&](const fs::path& place) {
    std::error_code error;
    const fs::file_status found = fs::status(place / step_directory_name(*newest), error);
    return found.type() == fs::file_type::not_found;
  };
  return lacks(dir) && (checkpoints.empty() || lacks(checkpoints));
}

std::optional<std::string> read_run_identity(const fs::path& run_dir) {
  return read_identity(run_dir / kRunPastFile);
}

std::optional<std::string> read_checkpoints_owner(const fs::path& checkpoints) {
  return read_identity(checkpoints / kCheckpointsOwnerFile);
}

void write_checkpoints_owner(const fs::path& checkpoints, const std::string& run) {
  write_text_atomic(checkpoints / kCheckpointsOwnerFile,
                    json_text(Json{{"run", run}}) + "\n");
}

}  // namespace longhaul::run
