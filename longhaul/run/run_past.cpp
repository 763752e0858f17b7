#include "longhaul/run/run_past.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <random>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/json/json_fields.h"
#include "longhaul/base/json/lenient_json.h"
#include "longhaul/run/events.h"
#include "longhaul/run/files.h"

namespace longhaul::run {
namespace {

constexpr size_t kIdentityDigits = 32;
constexpr uint64_t kLargestRecord = uint64_t{1} << 16;
/// A record keeps at most this many identities of runs that were given up.
constexpr size_t kMostGivenUp = 64;
/// A marker keeps at most this many names.
constexpr size_t kMostNames = 1000;
constexpr const char* kAdvice =
    "restore the file, or remove it where the run's checkpoints are in place";

/// Returns whether a file is there. Throws if that cannot be found out.
bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return false;
  if (error) throw to_error(fs::filesystem_error("look at", path, error));
  return true;
}

/// Returns a text that is an identity of a run or a name of a mirror. Throws for any
/// other text.
std::string proved_identity(const JsonFields& fields, const char* what,
                            std::string text) {
  if (!is_identity(text))
    fields.fail(fmt::format("{} '{}' is no identity of a run", what, text));
  return text;
}

/// Returns the identities in a list. A record of an older release lacks the list.
std::vector<std::string> identities_in(const JsonFields& fields, const char* list,
                                       size_t most) {
  std::vector<std::string> found;
  if (!fields.has(list)) return found;
  for (const Json& one : fields.list(list, most)) {
    const bool text = one.is_string();
    found.push_back(
        proved_identity(fields, list, text ? one.get<std::string>() : json_text(one)));
  }
  return found;
}

std::string identity_of(const JsonFields& fields) {
  return proved_identity(fields, "run", fields.get<std::string>("run"));
}

std::optional<Json> read_small(const fs::path& path) {
  if (!is_there(path)) return std::nullopt;
  const std::string text = read_text(path, kLargestRecord);
  try {
    return parse_json(text, path.string());
  } catch (const InputError& error) {
    fail_input("checkpoint", "{}; {}", error.message(), kAdvice);
  }
}

/// Calls `use` with the kind and the fields of each event of a run.
void for_each_event(const fs::path& run_dir,
                    const std::function<void(const std::string&, const Json&)>& use) {
  std::ifstream lines(run_dir / kEventsFile);
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_object()) use(EventHead::read(line, first_bytes).kind, line);
  }
}

/// Returns the step that a start or a rollback went on from; nothing for other events.
std::optional<int64_t> step_gone_back_to(const std::string& kind, const Json& line) {
  if (kind == StartEvent::kKind) return integer_at(line, "step");
  if (kind == RollbackEvent::kKind) return integer_at(line, "to_step");
  return std::nullopt;
}

/// Returns the step of the newest checkpoint of a run, as the run's events tell it.
std::optional<int64_t> newest_by_events(const fs::path& run_dir) {
  std::optional<int64_t> newest;
  for_each_event(run_dir, [&](const std::string& kind, const Json& line) {
    if (kind == CheckpointEvent::kKind) newest = integer_at(line, "step");
    const auto back = step_gone_back_to(kind, line);
    if (!newest || !back) return;
    newest = std::min(*newest, *back);
    if (*newest == 0) newest.reset();
  });
  return newest;
}

}  // namespace

std::string new_identity() {
  std::random_device source;
  std::string run;
  while (run.size() < kIdentityDigits) run += fmt::format("{:08x}", source());
  return run;
}

bool is_identity(const std::string& text) {
  return text.size() == kIdentityDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

RunPast RunPast::begin() {
  RunPast record;
  record.run = new_identity();
  return record;
}

RunPast RunPast::begin_anew() const {
  RunPast record = begin();
  // The new run continues the count of starts, because a supervisor compares it with the
  // count before its own first start.
  record.loads = loads;
  record.given_up = given_up;
  record.given_up.push_back(run);
  if (record.given_up.size() > kMostGivenUp) {
    record.given_up.erase(record.given_up.begin());
  }
  return record;
}

std::optional<RunPast> RunPast::read(const fs::path& run_dir) {
  const fs::path path = run_dir / kRunPastFile;
  const auto json = read_small(path);
  if (!json) {
    if (!is_there(run_dir / kEventsFile)) return std::nullopt;
    RunPast old = begin();
    old.newest = newest_by_events(run_dir);
    // If the events name no checkpoint, perhaps only a supervisor has written them. Then
    // there is no run yet.
    return old.newest ? std::optional(old) : std::nullopt;
  }
  const JsonFields fields(*json, "checkpoint", path.string(), kAdvice);
  RunPast record;
  record.run = identity_of(fields);
  record.loads = fields.count("loads");
  if (!fields.field("newest").is_null()) record.newest = fields.count("newest");
  record.checkpoints = fields.get<std::string>("checkpoints");
  record.given_up = identities_in(fields, "given_up", kMostGivenUp);
  return record;
}

void RunPast::write(const fs::path& run_dir) const {
  Json json = {{"run", run}, {"loads", loads}, {"newest", nullptr}};
  if (newest) json["newest"] = *newest;
  json["checkpoints"] = checkpoints;
  json["given_up"] = given_up;
  write_text_atomic(run_dir / kRunPastFile, json_text(json) + "\n");
}

bool RunPast::has_given_up(const std::string& identity) const {
  return std::ranges::find(given_up, identity) != given_up.end();
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
    const fs::file_status found =
        fs::status(place / step_directory_name(*newest) / kManifestFile, error);
    return found.type() == fs::file_type::not_found;
  };
  return lacks(dir) && (checkpoints.empty() || lacks(checkpoints));
}

bool RunPast::knows_no_start(const fs::path& run_dir) const {
  if (loads > 0 || newest) return false;
  bool tells = false;
  for_each_event(run_dir, [&](const std::string& kind, const Json&) {
    tells = tells || kind == StartEvent::kKind;
  });
  return !tells;
}

std::set<int64_t> committed_by_events(const fs::path& run_dir) {
  std::set<int64_t> steps;
  for_each_event(run_dir, [&](const std::string& kind, const Json& line) {
    if (kind == CheckpointEvent::kKind) steps.insert(integer_at(line, "step"));
    const auto back = step_gone_back_to(kind, line);
    if (back) steps.erase(steps.upper_bound(*back), steps.end());
  });
  return steps;
}

std::optional<std::string> read_run_identity(const fs::path& run_dir) {
  const fs::path path = run_dir / kRunPastFile;
  const auto json = read_small(path);
  if (!json) return std::nullopt;
  return identity_of(JsonFields(*json, "checkpoint", path.string(), kAdvice));
}

std::optional<CheckpointsMarker> read_checkpoints_marker(const fs::path& checkpoints) {
  const fs::path path = checkpoints / kCheckpointsOwnerFile;
  const auto json = read_small(path);
  if (!json) return std::nullopt;
  const JsonFields fields(*json, "checkpoint", path.string(), kAdvice);
  return CheckpointsMarker{
      identity_of(fields), fields.has("attempt") ? fields.get<int>("attempt") : 0,
      identities_in(fields, "names", kMostNames),
      fields.has("run_dir") ? fields.get<std::string>("run_dir") : ""};
}

void write_checkpoints_marker(const fs::path& checkpoints,
                              const CheckpointsMarker& marker) {
  Json json = {{"run", marker.run}};
  if (marker.attempt > 0) json["attempt"] = marker.attempt;
  if (!marker.names.empty()) json["names"] = marker.names;
  if (!marker.run_dir.empty()) json["run_dir"] = marker.run_dir;
  write_text_atomic(checkpoints / kCheckpointsOwnerFile, json_text(json) + "\n");
}

std::optional<std::string> read_checkpoints_owner(const fs::path& checkpoints) {
  const auto marker = read_checkpoints_marker(checkpoints);
  return marker ? std::optional(marker->run) : std::nullopt;
}

bool is_strangers(const fs::path& step_dir, const std::string& run) {
  const fs::path manifest = step_dir / kManifestFile;
  if (run.empty() || !is_seen(manifest)) return false;
  try {
    const Json json = read_json(manifest);
    const std::string saved_by(text_at(json, "run"));
    return !saved_by.empty() && saved_by != run;
  } catch (const Error&) {
    return false;  // a damaged one is nobody's
  }
}

CheckpointsMarker mark_checkpoints(const fs::path& checkpoints,
                                   const CheckpointsMarker& more) {
  const auto before = read_checkpoints_marker(checkpoints);
  CheckpointsMarker marker = before.value_or(CheckpointsMarker{});
  marker.run = more.run;
  marker.attempt = std::max(marker.attempt, more.attempt);
  if (!more.run_dir.empty()) marker.run_dir = more.run_dir;
  for (const std::string& name : more.names) {
    const bool known = std::ranges::find(marker.names, name) != marker.names.end();
    if (!known && !name.empty()) marker.names.push_back(name);
  }
  if (marker.names.size() > kMostNames) {
    marker.names.erase(marker.names.begin(), marker.names.end() - ptrdiff_t{kMostNames});
  }
  if (before != marker) write_checkpoints_marker(checkpoints, marker);
  return marker;
}

}  // namespace longhaul::run
