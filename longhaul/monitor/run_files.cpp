#include "longhaul/monitor/run_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json/lenient_json.h"
#include "longhaul/config/load.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_past.h"

namespace longhaul::monitor {
namespace {

constexpr uint64_t kLargestStatus = uint64_t{64} << 20;
constexpr uint64_t kLargestManifest = uint64_t{256} << 20;
constexpr uint64_t kLargestConfig = uint64_t{4} << 20;
/// The most bytes of text of the events that are kept.
constexpr uint64_t kMostEventBytes = uint64_t{128} << 20;
/// The most bytes of text of the events that keep experts' loads.
constexpr uint64_t kMostLoadBytes = uint64_t{32} << 20;
/// Bytes that an event of experts' loads adds to those of all events, whether it keeps
/// its loads or not.
constexpr uint64_t kBytesWithoutLoads = 256;
constexpr int kMaxFileDepth = 16;
constexpr size_t kMostStepDirectories = 100'000;

std::optional<FileStamp> stamp_of(const fs::path& path) {
  struct stat held{};
  if (::stat(path.c_str(), &held) != 0) return std::nullopt;
  return FileStamp{held.st_mtim.tv_sec * 1'000'000'000 + held.st_mtim.tv_nsec,
                   static_cast<uint64_t>(held.st_size), S_ISREG(held.st_mode)};
}

/// Adds up the sizes of the files that a manifest names; returns the first problem, or
/// nothing.
std::string check_files(const Json& json, const fs::path& dir, double& bytes) {
  if (json.is_object()) {
    const auto name = json.find("name");
    const auto size = json.find("size");
    if (name != json.end() && name->is_string() && size != json.end() &&
        size->is_number_unsigned()) {
      const auto& text = name->get_ref<const std::string&>();
      const auto file = stamp_of(join_inside(dir, text, "checkpoint"));
      if (!file) return plain_text(text) + " is missing";
      if (file->size != size->get<uint64_t>()) {
        return fmt::format("{} has {} bytes instead of {}", plain_text(text), file->size,
                           size->get<uint64_t>());
      }
      bytes += static_cast<double>(file->size);
      return {};
    }
  }
  if (json.is_structured()) {
    for (const Json& part : json) {
      std::string problem = check_files(part, dir, bytes);
      if (!problem.empty()) return problem;
    }
  }
  return {};
}

/// Returns a time of the manifest in seconds since 1970; 0 for other text.
double seconds_of(const std::string& text) {
  return static_cast<double>(std::max<int64_t>(0, utc_seconds(text).value_or(0)));
}

/// Returns the number of steps that results.json says.
std::optional<int64_t> total_steps_in(const Json& results) {
  const Json::json_pointer place("/results/parameters/Total steps");
  if (!results.contains(place) || !results.at(place).is_number_integer()) {
    return std::nullopt;
  }
  return results.at(place).get<int64_t>();
}

/// Returns the words ", here runs/mine" with the run.dir of a run file; empty if the file
/// cannot be read.
std::string run_dir_of(const fs::path& run_file) {
  try {
    return fmt::format(", here {}", load_run_config(run_file).config.run.dir.string());
  } catch (const Error&) {
    return "";
  }
}

/// Removes all fields but the step from an event of experts' loads.
void drop_loads(Event& event) {
  event.fields = {{"step", event.as<run::ExpertLoadsEvent>().step}};
}

}  // namespace

bool may_become_run(const fs::path& dir) {
  std::error_code error;
  if (!fs::exists(dir, error)) return true;
  if (!fs::is_directory(dir, error)) return false;
  return fs::is_empty(dir, error) ||
         (fs::exists(dir / run::kBatchScriptFile, error) && !run::holds_run(dir));
}

RunFiles::RunFiles(fs::path dir)
    : dir_(std::move(dir)),
      metrics_tail_(dir_ / run::kMetricsFile),
      events_tail_(dir_ / run::kEventsFile) {
  if (!is_seen_directory(dir_)) {
    const bool file = is_seen(dir_);
    if (file && dir_.extension() == ".toml") {
      fail_input("run directory",
                 "{} is a run file; give the directory that run.dir in it names{}",
                 dir_.string(), run_dir_of(dir_));
    }
    fail_input("run directory", "{} is no directory; give the run.dir of a run{}",
               dir_.string(), run::runs_below(dir_.parent_path()));
  }
  if (!run::holds_run(dir_)) {
    fail_input(
        "run directory",
        "{} holds nothing of a run (no {}, {}, {}, {}); give the run.dir of a run{}",
        dir_.string(), run::kMetricsFile, run::kEventsFile, run::kStatusFile,
        run::kConfigFile, run::runs_below(dir_));
  }
}

bool RunFiles::refresh() {
  const auto metrics =
      metrics_tail_.read([&](std::string_view line) { records_.add_line(line); },
                         [&] {
                           records_.clear();
                           settled_ = 0;
                         });
  const auto events = events_tail_.read([&](std::string_view line) { add_event(line); },
                                        [&] {
                                          events_.clear();
                                          clock_ = {};
                                          settled_ = 0;
                                          event_counts_ = {};
                                          loads_ = {};
                                        });
  // The clocks are set after the events are read, since the events tell which clock a
  // writer had.
  records_.set_clocks([&](int attempt) { return clock_.shift_of(attempt); });
  settle_takebacks();
  const FileStamp status_before = status_stamp_;
  read_changed(run::kStatusFile, status_stamp_, kLargestStatus,
               [&](const std::string& text) {
                 status_ = run::RunStatus::from_json(
                     parse_json(text, run::kStatusFile, kMaxFileDepth), plain_text);
               });
  if (status_stamp_ == FileStamp{}) status_.reset();
  read_changed(run::kResultsFile, results_stamp_, kLargestStatus,
               [&](const std::string& text) {
                 results_ = parse_json(text, run::kResultsFile, kMaxFileDepth);
               });
  read_changed(run::kConfigFile, config_stamp_, kLargestConfig,
               [&](const std::string& text) {
                 config_text_ = text;
                 config_ = parse_run_config(text, run::kConfigFile).config;
               });
  read_lock();
  return metrics != LineTail::Found::Nothing || events != LineTail::Found::Nothing ||
         status_before != status_stamp_;
}

template <typename Use>
void RunFiles::read_changed(const char* name, FileStamp& stamp, uint64_t limit, Use use) {
  const auto now = stamp_of(dir_ / name);
  problems_.erase(name);
  if (!now || !now->regular) {
    stamp = {};
    return;
  }
  try {
    if (*now != stamp) use(read_text(dir_ / name, limit));
    stamp = *now;
  } catch (const Error& error) {
    // The stamp stays the old one, so that the next refresh reads it again.
    problems_[name] = plain_text(error.what());
  }
}

void RunFiles::add_event(std::string_view line) {
  if (event_counts_.bytes + line.size() > kMostEventBytes) {
    ++event_counts_.left_out;
    return;
  }
  try {
    Event event;
    event.fields = parse_json(line, run::kEventsFile, kMaxFileDepth);
    if (!event.fields.is_object()) fail_input("json", "no object");
    run::EventHead head = run::EventHead::read(event.fields, plain_text);
    event.time = clock_.time_of(head);
    event.kind = std::move(head.kind);
    if (event.kind.empty() || event.time < 0.0 || event.time > run::kLastTime) {
      fail_input("json", "no event");
    }
    const bool has_loads = event.kind == run::ExpertLoadsEvent::kKind;
    event_counts_.bytes += has_loads ? kBytesWithoutLoads : line.size();
    events_.push_back(std::move(event));
    if (events_.back().kind == run::kSupervisorEndEvent) drop_refused_supervisor();
    if (has_loads) thin_loads(line.size());
  } catch (const InputError&) {
    ++event_counts_.unreadable;
  }
}

// Removes the events of a supervisor that ends, if its starts were refused before one
// began. Such a supervisor has not changed the run, so only the event of the refusal is
// kept.
void RunFiles::drop_refused_supervisor() {
  constexpr std::array<std::string_view, 6> kOwn = {
      run::SupervisorStartEvent::kKind, run::kSupervisorEndEvent, run::kHealthEvent,
      run::kSharedFindingEvent,         run::kClockJumpEvent,     run::FaultEvent::kKind};
  bool told = false;
  Event* fault = nullptr;
  size_t begin = events_.size() - 1;
  do {
    if (begin-- == 0) return;
    Event& event = events_[begin];
    if (event.kind == run::StartEvent::kKind || event.kind == run::kSupervisorEndEvent) {
      return;
    }
    told |= event.kind == run::RefusedStartEvent::kKind;
    const bool of_settings =
        event.kind == run::FaultEvent::kKind &&
        event.as<run::FaultEvent>().kind == run::FaultEvent::kSettings;
    if (of_settings) fault = &event;
  } while (events_[begin].kind != run::SupervisorStartEvent::kKind);
  // Events with loads are found by their indices in `events_`, which must not move.
  // Another start may have added such events behind `begin`.
  const bool moves = !loads_.kept.empty() && loads_.kept.back().first > begin;
  if ((!told && fault == nullptr) || moves) return;
  if (!told) {
    fault->fields["message"] = fault->as<run::FaultEvent>().cause;
    fault->kind = run::RefusedStartEvent::kKind;
  }
  const auto own = [&](const Event& event) {
    return event.attempt() < 0 && std::ranges::find(kOwn, event.kind) != kOwn.end();
  };
  events_.erase(
      std::remove_if(events_.begin() + static_cast<ptrdiff_t>(begin), events_.end(), own),
      events_.end());
  settled_ = std::min(settled_, begin);
}

// Thins the loads when the newest event holds loads. In a long run the loads must leave
// room for other events.
void RunFiles::thin_loads(uint64_t bytes) {
  if (loads_.told++ % loads_.every != 0) return drop_loads(events_.back());
  loads_.kept.emplace_back(events_.size() - 1, bytes);
  loads_.bytes += bytes;
  while (loads_.bytes > kMostLoadBytes) {
    loads_.every *= 2;
    loads_.bytes = 0;
    std::vector<std::pair<size_t, uint64_t>> kept;
    for (size_t i = 0; i < loads_.kept.size(); ++i) {
      const auto& [index, size] = loads_.kept[i];
      if (i % 2 == 0) {
        kept.push_back(loads_.kept[i]);
        loads_.bytes += size;
      } else {
        drop_loads(events_[index]);
      }
    }
    loads_.kept = std::move(kept);
  }
}

// A start begins from a checkpoint, and a rollback goes back to a step. The steps above
// that step do not count any more, even before they are done again.
void RunFiles::settle_takebacks() {
  for (; settled_ < events_.size(); ++settled_) {
    const Event& event = events_[settled_];
    const int64_t told =
        event.attempt() < 0 ? records_.newest_attempt() : event.attempt();
    const auto attempt = static_cast<int>(std::min<int64_t>(told, 1'000'000'000));
    if (event.kind == run::StartEvent::kKind) {
      records_.take_back(event.as<run::StartEvent>().step, attempt - 1,
                         std::numeric_limits<double>::infinity());
    } else if (event.kind == run::RollbackEvent::kKind) {
      records_.take_back(event.as<run::RollbackEvent>().to_step, attempt, event.time);
    }
  }
}

void RunFiles::read_lock() {
  problems_.erase(run::kRunLockFile);
  try {
    system::OwnerLockOptions options;
    options.probe = false;
    lock_ = system::OwnerLock::look(dir_ / run::kRunLockFile, options);
  } catch (const Error& error) {
    lock_.reset();
    problems_[run::kRunLockFile] = plain_text(error.what());
  }
}

std::optional<int64_t> RunFiles::last_step() const {
  for (size_t i = events_.size(); i-- > 0;) {
    const bool decided = events_[i].kind == run::EndDecidedEvent::kKind;
    if (!decided && events_[i].kind != run::StartEvent::kKind) continue;
    const int64_t step = decided ? events_[i].as<run::EndDecidedEvent>().last_step
                                 : events_[i].as<run::StartEvent>().last_step;
    if (step > 0) return step;
    break;
  }
  const auto total = config_ && config_->run.steps
                         ? config_->run.steps
                         : (results_ ? total_steps_in(*results_) : std::nullopt);
  if (!config_ || !config_->run.stop_after) return total;
  return total ? std::min(*total, *config_->run.stop_after) : config_->run.stop_after;
}

fs::path RunFiles::checkpoint_dir() const {
  if (config_ && !config_->checkpoint.dir.empty()) return config_->checkpoint.dir;
  return dir_ / run::kCheckpointsDir;
}

std::vector<std::pair<int64_t, fs::path>> RunFiles::step_directories() const {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator it(checkpoint_dir(), error), end; !error && it != end;
       it.increment(error)) {
    const auto step = run::step_of(it->path());
    if (step) found.emplace_back(*step, it->path());
    if (found.size() >= kMostStepDirectories) break;
  }
  std::sort(found.begin(), found.end());
  return found;
}

// A checkpoint does not change once its manifest is there. So each is judged once.
const CheckpointInfo& RunFiles::judge(int64_t step, const fs::path& path) {
  const auto manifest_stamp = stamp_of(path / run::kManifestFile);
  auto& [judged_at, info] = judged_[path];
  if (manifest_stamp && judged_at == *manifest_stamp) return info;
  judged_at = manifest_stamp.value_or(FileStamp());
  info = {};
  info.step = step;
  if (!manifest_stamp) {
    info.problem = "no manifest: being written, or its writing never ended";
    return info;
  }
  info.committed = true;
  try {
    const Json manifest =
        parse_json(read_text(path / run::kManifestFile, kLargestManifest),
                   run::kManifestFile, kMaxFileDepth);
    // The time comes from the manifest, since a copy of the run does not keep the file's
    // own time.
    info.saved = seconds_of(std::string(text_at(manifest, "saved_at")));
    info.problem = check_files(manifest, path, info.bytes);
    if (info.problem.empty() && integer_at(manifest, "step", -1) != step) {
      info.problem = "its manifest is of another step";
    }
    const std::string saved_by(text_at(manifest, "run"));
    const auto owner = run::read_checkpoints_owner(path.parent_path());
    if (info.problem.empty() && owner && !saved_by.empty() && saved_by != *owner) {
      info.problem = "it was saved by another run";
    }
  } catch (const Error& error) {
    info.problem = plain_text(error.what());
  }
  info.valid = info.problem.empty();
  return info;
}

std::vector<CheckpointInfo> RunFiles::checkpoints() {
  std::vector<CheckpointInfo> all;
  for (const auto& [step, path] : step_directories()) all.push_back(judge(step, path));
  return all;
}

std::optional<CheckpointInfo> RunFiles::newest_checkpoint() {
  const auto found = step_directories();
  for (size_t i = found.size(); i-- > 0;) {
    const CheckpointInfo& info = judge(found[i].first, found[i].second);
    if (info.valid) return info;
  }
  return std::nullopt;
}

std::optional<int64_t> RunFiles::missing_step() const {
  try {
    if (!run::read_run_identity(dir_)) return std::nullopt;
    const auto past = run::RunPast::read(dir_);
    return past && past->misses_newest(checkpoint_dir()) ? past->newest : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<std::string> RunFiles::notes() const {
  std::vector<std::string> lines;
  for (const auto& [name, problem] : problems_) lines.push_back(problem);
  const auto count = [&](int64_t number, const char* file, const char* what) {
    if (number > 0) lines.push_back(fmt::format("{} lines of {} {}", number, file, what));
  };
  count(records_.unreadable(), run::kMetricsFile, "cannot be read");
  count(metrics_tail_.too_long(), run::kMetricsFile, "are longer than 1 MiB");
  count(event_counts_.unreadable, run::kEventsFile, "cannot be read");
  count(events_tail_.too_long(), run::kEventsFile, "are longer than 1 MiB");
  count(event_counts_.left_out, run::kEventsFile, "are left out: it is too large");
  return lines;
}

}  // namespace longhaul::monitor
