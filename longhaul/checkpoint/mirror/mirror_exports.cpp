#include "longhaul/checkpoint/mirror/mirror_exports.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/run/files.h"
#include "longhaul/system/signals.h"

namespace longhaul::checkpoint {
namespace {

constexpr std::string_view kBelow = "run/";
constexpr const char* kCopiedFile = "run/copied.json";
constexpr std::string_view kReportPage = "report.html";
constexpr const char* kModelConfig = "config.json";
constexpr const char* kWeightsIndex = "model.safetensors.index.json";
/// Depth below the run's directory at which an export may lie: RUN/exports/final.
constexpr int kDeepest = 2;

/// Returns whether a directory holds a whole export. A directory that cannot be read
/// counts as none, so a link to such a place is no error. An export that is being written
/// has another name, with ".tmp.".
bool is_export(const fs::path& dir) {
  if (dir.filename().string().find(".tmp.") != std::string::npos) return false;
  const auto has = [&](const char* name) { return is_seen(dir / name); };
  return has(kModelConfig) && (has("model.safetensors") || has(kWeightsIndex));
}

/// Returns the size and the time of a file, which change when it is written again.
std::string state_of(const fs::path& file) {
  const auto time = fs::last_write_time(file).time_since_epoch();
  return fmt::format("{} {}", fs::file_size(file), time.count());
}

/// Returns whether a path is `dir` or lies in it, once links are followed.
bool lies_in(const fs::path& path, const fs::path& dir) {
  std::error_code absent;
  const fs::path inner = fs::canonical(path, absent);
  if (absent) return false;
  const fs::path outer = fs::canonical(dir, absent);
  return !absent && *inner.lexically_relative(outer).begin() != "..";
}

/// Adds the files in a directory of an export and in the directories below it, and
/// follows links. `above` lists the directories above it, without links. Throws
/// InputError for anything that is not a file, so that an incomplete export is not taken
/// for a whole one.
void add_files(const fs::path& dir, std::vector<fs::path>& above,
               std::vector<fs::path>& files) {
  const fs::path real = fs::canonical(dir);
  if (std::ranges::find(above, real) != above.end()) {
    fail_input("mirror",
               "{} is a link to a directory that holds it, so that the export has no "
               "end; remove the link",
               dir.string());
  }
  above.push_back(real);
  for (const auto& entry : fs::directory_iterator(dir)) {
    std::error_code absent;
    if (entry.is_regular_file(absent)) {
      files.push_back(entry.path());
    } else if (entry.is_directory(absent)) {
      add_files(entry.path(), above, files);
    } else {
      fail_input("mirror",
                 "{} is no file, and maybe a link to none, so that a part of the export "
                 "is missing; mend or remove it",
                 entry.path().string());
    }
  }
  above.pop_back();
}

/// Returns the names of an export's files in the run's directory.
std::vector<std::string> files_of_export(const fs::path& run_dir, const fs::path& dir) {
  std::vector<fs::path> above, files;
  add_files(dir, above, files);
  std::vector<std::string> names;
  for (const fs::path& file : files) {
    names.push_back(file.lexically_relative(run_dir).string());
  }
  std::ranges::sort(names);
  // The index and config.json come last. Without them nobody takes the files for an
  // export.
  for (const char* last : {kWeightsIndex, kModelConfig}) {
    const std::string name = (dir.lexically_relative(run_dir) / last).string();
    std::ranges::stable_partition(names, [&](const auto& one) { return one != name; });
  }
  return names;
}

}  // namespace

MirrorExports::MirrorExports(MirrorStore& store, fs::path run_dir, fs::path checkpoints,
                             std::function<void(const std::string&)> tell)
    : store_(store),
      run_dir_(std::move(run_dir)),
      checkpoints_(std::move(checkpoints)),
      tell_(std::move(tell)) {
  thread_ = std::thread([this] {
    system::leave_signals_to_main_thread();
    run();
  });
}

MirrorExports::~MirrorExports() {
  end();
  thread_.join();
}

void MirrorExports::end() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void MirrorExports::look() {
  const std::lock_guard lock(mutex_);
  wanted_ = true;
  changed_.notify_all();
}

bool MirrorExports::busy() const {
  const std::lock_guard lock(mutex_);
  return !stopped_ && (wanted_ || at_work_);
}

void MirrorExports::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      at_work_ = false;
      changed_.wait(lock, [&] { return stopped_ || wanted_; });
      if (stopped_) return;
      wanted_ = false;
      at_work_ = true;
    }
    const auto failure = Failure::of([&] { copy_all(); });
    if (!failure || stopped_) continue;
    tell_(
        fmt::format("exports and reports were not all copied to the mirror, the next "
                    "checkpoint tries again: {}",
                    failure->message));
  }
}

void MirrorExports::copy_all() {
  const std::vector<fs::path> found = find();
  if (found.empty()) return;
  if (!copied_) {
    std::map<std::string, std::string> copied;
    if (const auto text = store_.read_text(kCopiedFile)) {
      // If the list of copied files cannot be read, all files are copied again.
      Failure::of([&] { parse_json(*text, kCopiedFile).get_to(copied); });
    }
    copied_ = std::move(copied);
  }
  // An export that cannot be copied keeps no other export from the mirror.
  std::optional<Failure> first;
  for (const fs::path& path : found) {
    if (stopped_) return;
    const auto failure = Failure::of([&] {
      copy(fs::is_directory(path) ? files_of_export(run_dir_, path)
                                  : Group{path.filename().string()});
    });
    if (failure && !first) first = failure;
  }
  if (first) first->raise();
}

/// Returns the pages and the directories of finished exports in the run's directory.
std::vector<fs::path> MirrorExports::find() const {
  std::vector<fs::path> found;
  find_below(run_dir_, 1, found);
  return found;
}

/// Adds the pages and exports in `dir`, whose entries lie `depth` levels below the run's
/// directory.
void MirrorExports::find_below(const fs::path& dir, int depth,
                               std::vector<fs::path>& found) const {
  std::error_code absent;
  for (const auto& entry :
       fs::directory_iterator(dir, fs::directory_options::skip_permission_denied)) {
    const fs::path& path = entry.path();
    const std::string name = path.filename().string();
    if (entry.is_regular_file(absent)) {
      if (depth == 1 && name.ends_with(kReportPage)) found.push_back(path);
      continue;
    }
    if (!entry.is_directory(absent)) continue;
    if (name.starts_with('.') || name == run::kCapturesDir ||
        name == run::kCheckpointsDir || name == run::kDataCacheDir ||
        fs::equivalent(path, checkpoints_, absent)) {
      continue;
    }
    if (is_export(path)) {
      found.push_back(path);
    } else if (depth < kDeepest && !leads_back(entry)) {
      find_below(path, depth + 1, found);
    }
  }
}

/// Returns whether a directory is a link to what lies in the run's directory anyway, or
/// among its checkpoints.
bool MirrorExports::leads_back(const fs::directory_entry& dir) const {
  return dir.is_symlink() &&
         (lies_in(dir.path(), run_dir_) || lies_in(dir.path(), checkpoints_));
}

/// Copies a page or an export if any file of it has changed, and removes what the mirror
/// has of the export that was there before.
void MirrorExports::copy(const Group& group) {
  std::map<std::string, std::string> changed;
  for (const std::string& name : group) {
    const auto known = copied_->find(name);
    const std::string state = state_of(run_dir_ / name);
    if (known == copied_->end() || known->second != state) changed[name] = state;
  }
  if (changed.empty()) return;
  const std::string dir = fs::path(group.back()).parent_path().string();
  if (!dir.empty()) {
    // While its files change, an export has no config.json in the mirror. So nobody takes
    // it for an export.
    std::vector<std::string> gone = {group.back()};
    for (const auto& [name, state] : *copied_) {
      const bool of_it = name.starts_with(dir + "/");
      if (of_it && std::ranges::find(group, name) == group.end()) gone.push_back(name);
    }
    for (const std::string& name : gone) {
      if (!copied_->contains(name)) continue;
      store_.remove(fmt::format("{}{}", kBelow, name));
      copied_->erase(name);
      note();
    }
    changed.try_emplace(group.back(), state_of(run_dir_ / group.back()));
  }
  for (const std::string& name : group) {
    if (stopped_) return;
    if (!changed.contains(name)) continue;
    store_.put(run_dir_ / name, fmt::format("{}{}", kBelow, name));
    (*copied_)[name] = changed[name];
    note();
  }
  tell_(fmt::format("{} copied to {}/{}", dir.empty() ? group.back() : dir,
                    store_.place(), kBelow));
}

/// Writes the list of copied files to the mirror.
void MirrorExports::note() {
  store_.put_text(json_text(Json(*copied_), 1) + "\n", kCopiedFile);
}

}  // namespace longhaul::checkpoint
