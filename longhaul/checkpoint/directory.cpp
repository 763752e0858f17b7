#include "longhaul/checkpoint/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ranges>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/config/due.h"
#include "longhaul/config/load.h"
#include "longhaul/format/finite.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/run/run_past.h"

namespace longhaul::checkpoint {
namespace {

void judge(CheckpointEntry& entry) {
  try {
    const Manifest manifest = Manifest::read(entry.path);
    entry.run = manifest.run;
    for (const Manifest::FileEntry& file : manifest.files()) {
      check_file_size(entry.path, file);
    }
    if (manifest.step != entry.step) {
      entry.problem = fmt::format("{}: its manifest is of step {}", entry.path.string(),
                                  manifest.step);
    }
  } catch (const Error& error) {
    entry.problem = error.message();
  }
  entry.valid = entry.problem.empty();
}

/// Marks the checkpoints that are not of the run that owns `dir` as strangers.
void judge_strangers(const fs::path& dir, std::vector<CheckpointEntry>& entries) {
  std::set<std::string> runs;
  for (const CheckpointEntry& entry : entries) runs.insert(entry.run);
  runs.erase("");
  if (runs.empty()) return;
  const std::string owner = run::read_checkpoints_owner(dir).value_or("");
  if (owner.empty() && runs.size() == 1) return;
  for (CheckpointEntry& entry : entries) {
    if (entry.run.empty() || entry.run == owner) continue;
    entry.stranger = true;
    entry.valid = false;
    const std::string whose =
        owner.empty() ? fmt::format("has checkpoints of several runs and no {}",
                                    run::kCheckpointsOwnerFile)
                      : fmt::format("is the directory of run {}", owner);
    entry.problem = fmt::format(
        "{}: run {} saved it, and {} {}: it is neither taken by itself nor deleted; move "
        "it away, or name its path where it is meant",
        entry.path.string(), entry.run, dir.string(), whose);
  }
}

/// Returns the directories in `dir`; none where `dir` is absent. A directory that cannot
/// be listed is an error, since its content is unknown.
std::vector<fs::path> directories_in(const fs::path& dir) {
  std::vector<fs::path> paths;
  std::error_code error;
  const fs::file_status status = fs::status(dir, error);
  if (status.type() == fs::file_type::not_found) {
    refuse_dangling(dir);
    return paths;
  }
  if (error) throw to_error(fs::filesystem_error("look at", dir, error));
  if (!fs::is_directory(status)) return paths;
  fs::directory_iterator entry(dir, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code gone;
    if (entry->is_directory(gone)) paths.push_back(entry->path());
  }
  if (error) throw to_error(fs::filesystem_error("list", dir, error));
  return paths;
}

void pass_over(const CheckpointEntry& entry, std::vector<std::string>* skipped) {
  if (skipped == nullptr) return;
  skipped->push_back(
      fmt::format("{} passed over: {}", entry.path.filename().string(), entry.problem));
}

/// Returns the valid checkpoints in `dir`, the newest first.
std::vector<fs::path> valid_newest_first(const fs::path& dir,
                                         std::vector<std::string>* skipped) {
  std::vector<fs::path> paths;
  for (const CheckpointEntry& entry : list_checkpoints(dir) | std::views::reverse) {
    if (entry.valid) {
      paths.push_back(entry.path);
    } else {
      pass_over(entry, skipped);
    }
  }
  return paths;
}

// Throws where checkpoints were committed, and no whole checkpoint of this run is left.
// Such a run must not begin anew by itself.
void refuse_damaged(const fs::path& dir) {
  std::optional<CheckpointEntry> stranger;
  for (const CheckpointEntry& entry : list_checkpoints(dir)) {
    if (!fs::exists(entry.path / run::kManifestFile)) continue;
    if (entry.stranger) stranger = entry;
    if (entry.stranger) continue;
    fail_input("checkpoint",
               "{}: no checkpoint of this run is whole: {}; restore a whole checkpoint, "
               "or set checkpoint.resume = \"never\" to begin anew",
               dir.string(), entry.problem);
  }
  if (!stranger) return;
  fail_input("checkpoint",
             "no checkpoint of this run is there, and one of another run is: {0}. Set "
             "checkpoint.resume = \"{1}\" to begin from it, or \"never\" to begin anew",
             stranger->problem, stranger->path.string());
}

/// Returns whether an error tells of damage in this checkpoint. A value that was saved as
/// NaN is no damage: the caller must not go on with the weights of an older checkpoint.
bool is_of(const Error& error, const fs::path& checkpoint) {
  return error.kind() == ErrorKind::Input && error.area() != format::kValuesArea &&
         std::string_view(error.what()).find(checkpoint.string()) !=
             std::string_view::npos;
}

/// What a file system could not do, and the errno of the call; 0 if no call failed.
struct Refusal {
  const char* what = "";
  int error = 0;
};

/// Makes, syncs and renames a file, and syncs its directory.
Refusal try_durable(const fs::path& dir, const fs::path& probe, const fs::path& renamed) {
  const auto opened = [](const fs::path& path, int flags) {
    return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0600));
  };
  Descriptor file = opened(probe, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.is_open()) return {"make a file", errno};
  if (::write(file.get(), "probe\n", 6) != 6) return {"write a file", errno};
  if (::fsync(file.get()) != 0) return {"sync a file (fsync)", errno};
  file.reset();
  if (::rename(probe.c_str(), renamed.c_str()) != 0) return {"rename a file", errno};
  const Descriptor folder = opened(dir, O_RDONLY | O_DIRECTORY);
  if (!folder.is_open()) return {"open a directory", errno};
  return {"sync a directory (fsync)", ::fsync(folder.get()) == 0 ? 0 : errno};
}

// Removes the manifest first: what is half deleted is no checkpoint.
void remove_checkpoint(const fs::path& dir, const std::function<void()>& moved) {
  withdraw_checkpoint(dir);
  for (const auto& entry : fs::directory_iterator(dir)) {
    fs::remove_all(entry.path());
    if (moved) moved();
  }
  fs::remove(dir);
}

}  // namespace

void refuse_dangling(const fs::path& dir) {
  for (fs::path path = fs::absolute(dir); path.has_relative_path();
       path = path.parent_path()) {
    const std::string link = dangling_link(path);
    if (link.empty()) continue;
    fail_input("checkpoint",
               "{}: {}; bring that directory or its mount back, or create it; remove the "
               "link only if its checkpoints are not needed",
               path.string(), link);
  }
}

void prove_durable(const fs::path& dir, const std::string& node) {
  const fs::path probe = dir / (".longhaul_probe_" + node);
  const fs::path renamed = probe.string() + ".renamed";
  const Refusal refusal = try_durable(dir, probe, renamed);
  ::unlink(probe.c_str());
  ::unlink(renamed.c_str());
  // The errors that do not pass by themselves. Any other error may be gone when the run
  // saves; if it is not, the save reports it.
  constexpr std::array<int, 7> kForGood = {ENOSYS, EOPNOTSUPP, EINVAL, EPERM,
                                           EACCES, EXDEV,      EROFS};
  if (std::ranges::find(kForGood, refusal.error) == kForGood.end()) return;
  fail_input("checkpoint",
             "{}: this file system cannot {} ({}), which every safe checkpoint needs; "
             "set checkpoint.dir to a local disk or a shared file system (Lustre, NFS, "
             "GPFS), not to a mounted bucket (longhaul docs checkpoints#file-systems)",
             dir.string(), refusal.what, std::strerror(refusal.error));
}

std::vector<CheckpointEntry> list_checkpoints(const fs::path& dir) {
  std::vector<CheckpointEntry> entries;
  for (const fs::path& path : directories_in(dir)) {
    const auto step = run::step_of(path);
    if (!step) continue;
    CheckpointEntry entry;
    entry.step = *step;
    entry.path = path;
    judge(entry);
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  judge_strangers(dir, entries);
  return entries;
}

bool has_committed(const fs::path& dir, const std::string& run) {
  std::vector<fs::path> paths = directories_in(dir);
  std::erase_if(paths, [](const fs::path& path) {
    return !run::step_of(path) || !fs::exists(path / run::kManifestFile);
  });
  if (paths.empty()) return false;
  const std::string owner = run::read_checkpoints_owner(dir).value_or(run);
  return !std::ranges::all_of(
      paths, [&](const fs::path& path) { return run::is_strangers(path, owner); });
}

std::vector<fs::path> list_set_aside(const fs::path& dir) {
  std::vector<fs::path> found;
  for (const fs::path& path : directories_in(dir)) {
    if (path.has_extension() && run::step_of(path.stem())) found.push_back(path);
  }
  std::ranges::sort(found);
  return found;
}

std::optional<CheckpointEntry> find_latest(const fs::path& dir,
                                           std::vector<std::string>* skipped) {
  std::vector<CheckpointEntry> entries = list_checkpoints(dir);
  while (!entries.empty() && !entries.back().valid) {
    pass_over(entries.back(), skipped);
    entries.pop_back();
  }
  return entries.empty() ? std::nullopt : std::optional(entries.back());
}

std::vector<fs::path> valid_checkpoints_of(const fs::path& path,
                                           std::vector<std::string>* skipped) {
  std::vector<fs::path> found = valid_newest_first(checkpoints_dir_of(path), skipped);
  return found.empty() ? valid_newest_first(path, skipped) : found;
}

std::vector<fs::path> checkpoints_of_steps(const fs::path& path,
                                           const std::vector<int64_t>& steps) {
  std::vector<std::string> skipped;
  const std::vector<fs::path> valid = valid_checkpoints_of(path, &skipped);
  std::vector<fs::path> found;
  for (const int64_t step : steps) {
    const std::string name = run::step_directory_name(step);
    const auto at = std::ranges::find_if(
        valid, [&](const fs::path& one) { return one.filename() == name; });
    if (std::ranges::count(steps, step) > 1) {
      fail_input("checkpoint", "step {} is given more than once", step);
    }
    if (at == valid.end()) {
      std::vector<std::string> names;
      for (const fs::path& one : valid) names.push_back(one.filename().string());
      fail_input("checkpoint", "{} has no valid checkpoint {}; it has {}{}{}",
                 path.string(), name,
                 names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")),
                 skipped.empty() ? "" : "; ", fmt::join(skipped, "; "));
    }
    found.push_back(*at);
  }
  return found;
}

std::vector<fs::path> apply_retention(const fs::path& dir, const Retention& retention) {
  std::vector<fs::path> deleted;
  if (retention.keep <= 0) return deleted;
  const std::vector<CheckpointEntry> entries = list_checkpoints(dir);
  bool valid_above = false;
  int64_t verified_above = 0;
  for (size_t i = entries.size(); i-- > 0;) {
    const CheckpointEntry& entry = entries[i];
    const bool milestone = config::is_due(retention.milestone_every, entry.step);
    // An invalid checkpoint is deleted only below a valid one, and only if its writing
    // never ended. A checkpoint that was damaged later stays, so that a person can look
    // at it.
    const bool leftover =
        !entry.valid && valid_above && !fs::exists(entry.path / run::kManifestFile);
    const bool held = retention.held && retention.held(entry.step);
    const bool superseded =
        entry.valid && !milestone && !held && verified_above >= retention.keep;
    if (superseded || leftover) {
      if (retention.lock != nullptr) retention.lock->check();
      remove_checkpoint(entry.path, retention.moved);
      deleted.push_back(entry.path);
      continue;
    }
    valid_above = valid_above || entry.valid;
    if (entry.valid && retention.verified.contains(entry.step)) ++verified_above;
  }
  return deleted;
}

void withdraw_checkpoint(const fs::path& step_dir) {
  fs::remove(step_dir / run::kManifestFile);
  sync_directory(step_dir);
}

fs::path set_aside(const fs::path& step_dir, const std::string& reason) {
  const std::string base = step_dir.string() + "." + reason;
  fs::path aside = base;
  for (int n = 2; fs::exists(aside); ++n) aside = fmt::format("{}{}", base, n);
  fs::rename(step_dir, aside);
  sync_directory(step_dir.parent_path());
  return aside;
}

std::optional<fs::path> set_stranger_aside(const fs::path& step_dir,
                                           const std::string& run) {
  if (!run::is_strangers(step_dir, run)) return std::nullopt;
  return set_aside(step_dir, "of_another_run");
}

std::vector<fs::path> resume_candidates(const ResumeFrom& resume,
                                        const fs::path& checkpoints_dir,
                                        std::vector<std::string>* skipped) {
  if (resume.kind == ResumeFrom::Kind::Never) return {};
  if (resume.kind == ResumeFrom::Kind::Latest) {
    std::vector<fs::path> found = valid_newest_first(checkpoints_dir, skipped);
    if (found.empty()) refuse_damaged(checkpoints_dir);
    return found;
  }
  if (resume.kind == ResumeFrom::Kind::Step) {
    CheckpointEntry entry;
    entry.step = resume.step;
    entry.path = checkpoints_dir / run::step_directory_name(resume.step);
    judge(entry);
    std::string have;
    for (const CheckpointEntry& other : list_checkpoints(checkpoints_dir)) {
      if (other.step == resume.step) entry = other;
      if (other.valid) have += fmt::format("{}{}", have.empty() ? "" : ", ", other.step);
    }
    if (entry.valid) return {entry.path};
    fail_input("checkpoint", "resume = {}: {}; valid steps in {}: {}", resume.step,
               entry.problem, checkpoints_dir.string(), have.empty() ? "none" : have);
  }
  if (fs::exists(resume.path / run::kManifestFile)) return {resume.path};
  std::vector<fs::path> found = valid_checkpoints_of(resume.path, skipped);
  if (!found.empty()) return found;
  fail_input("checkpoint",
             "resume = \"{}\": the path is neither a checkpoint nor a run with a valid "
             "checkpoint; give \"latest\", \"never\", a step or such a path",
             resume.path.string());
}

fs::path checkpoints_dir_of(const fs::path& run_dir) {
  const fs::path config = run_dir / run::kConfigFile;
  if (is_seen_file(config)) {
    try {
      const fs::path dir = load_run_config(config).config.checkpoint.dir;
      if (!dir.empty()) return dir;
    } catch (const Error&) {
      // A config that cannot be read is of another release. The default place is still
      // the best guess.
    }
  }
  return run_dir / run::kCheckpointsDir;
}

std::optional<fs::path> missing_newest(const fs::path& run_dir, const fs::path& dir) {
  if (!run::read_run_identity(run_dir)) return std::nullopt;
  const auto past = run::RunPast::read(run_dir);
  if (!past || !past->misses_newest(dir)) return std::nullopt;
  return dir / run::step_directory_name(*past->newest);
}

std::optional<CheckpointEntry> newest_of(const fs::path& path,
                                         std::vector<std::string>* skipped) {
  for (const fs::path& dir : {checkpoints_dir_of(path), path}) {
    auto latest = find_latest(dir, skipped);
    if (!latest) continue;
    const auto missing = missing_newest(path, dir);
    // If the directory of the missing checkpoint exists, find_latest has already said why
    // it was passed over.
    if (skipped != nullptr && missing && *run::step_of(*missing) > latest->step &&
        !fs::exists(*missing)) {
      skipped->push_back(
          fmt::format("{} passed over: it was committed and is not there any more",
                      missing->filename().string()));
    }
    return latest;
  }
  return std::nullopt;
}

std::optional<fs::path> find_checkpoint(const fs::path& path,
                                        std::vector<std::string>* skipped) {
  if (fs::exists(path / run::kManifestFile)) return path;
  const auto newest = newest_of(path, skipped);
  return newest ? std::optional(newest->path) : std::nullopt;
}

void with_fall_back(const fs::path& named,
                    const std::function<void(const fs::path&)>& use,
                    const std::function<void(const std::string&)>& tell) {
  // The list stays empty where the path names a checkpoint itself or a model.
  std::vector<fs::path> paths;
  if (is_seen_directory(named) && !is_seen(named / run::kManifestFile)) {
    paths = valid_checkpoints_of(named);
  }
  fs::path path = named;
  for (size_t next = 1;; ++next) {
    try {
      use(path);
      return;
    } catch (const Error& problem) {
      if (next >= paths.size() || !is_of(problem, paths[next - 1])) throw;
      tell(fmt::format("{} is damaged: {}; taking {}, the one before it",
                       paths[next - 1].string(), problem.what(), paths[next].string()));
      path = paths[next];
    }
  }
}

}  // namespace longhaul::checkpoint
