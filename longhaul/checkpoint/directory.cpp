#include "longhaul/checkpoint/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/config/load.h"

namespace longhaul::checkpoint {
namespace {

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    return std::nullopt;
  }
  return number;
}

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with("step_")) return std::nullopt;
  return parse_number(std::string_view(name).substr(5));
}

void judge(CheckpointEntry& entry) {
  try {
    const Manifest manifest = Manifest::read(entry.path);
    check_file_sizes(entry.path, manifest);
    if (manifest.step != entry.step) {
      entry.problem = fmt::format("{}: its manifest is of step {}", entry.path.string(),
                                  manifest.step);
    }
  } catch (const Error& error) {
    entry.problem = error.what();
  }
  entry.valid = entry.problem.empty();
}

// The manifest first: what is half deleted is no checkpoint.
void remove_checkpoint(const fs::path& dir) {
  fs::remove(dir / kManifestName);
  sync_directory(dir);
  fs::remove_all(dir);
}

}  // namespace

std::string step_directory_name(int64_t step) { return fmt::format("step_{:08}", step); }

std::vector<CheckpointEntry> list_checkpoints(const fs::path& dir) {
  std::vector<CheckpointEntry> entries;
  std::error_code error;
  if (!fs::is_directory(dir, error)) return entries;
  for (const auto& found : fs::directory_iterator(dir)) {
    const auto step = step_of(found.path().filename().string());
    if (!step || !found.is_directory(error)) continue;
    CheckpointEntry entry;
    entry.step = *step;
    entry.path = found.path();
    judge(entry);
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return entries;
}

std::optional<CheckpointEntry> find_latest(const fs::path& dir,
                                           std::vector<std::string>* skipped) {
  std::vector<CheckpointEntry> entries = list_checkpoints(dir);
  for (size_t i = entries.size(); i-- > 0;) {
    if (entries[i].valid) return entries[i];
    if (skipped != nullptr) {
      skipped->push_back(fmt::format(
          "{} passed over: {}", entries[i].path.filename().string(), entries[i].problem));
    }
  }
  return std::nullopt;
}

std::vector<fs::path> apply_retention(const fs::path& dir, int64_t keep) {
  std::vector<fs::path> deleted;
  if (keep <= 0) return deleted;
  const std::vector<CheckpointEntry> entries = list_checkpoints(dir);
  int64_t newer = 0;  // valid ones above
  for (size_t i = entries.size(); i-- > 0;) {
    const CheckpointEntry& entry = entries[i];
    if (entry.valid) ++newer;
    // An invalid one is deleted only below a valid one and only if its writing never
    // ended; one that was damaged later stays for a person to look at.
    const bool leftover =
        !entry.valid && newer > 0 && !fs::exists(entry.path / kManifestName);
    if ((entry.valid && newer > keep) || leftover) {
      remove_checkpoint(entry.path);
      deleted.push_back(entry.path);
    }
  }
  if (!deleted.empty()) sync_directory(dir);
  return deleted;
}

std::optional<fs::path> choose_resume(const ResumeFrom& resume,
                                      const fs::path& checkpoints_dir,
                                      std::vector<std::string>* skipped) {
  if (resume.kind == ResumeFrom::Kind::Never) return std::nullopt;
  if (resume.kind == ResumeFrom::Kind::Latest) {
    const auto latest = find_latest(checkpoints_dir, skipped);
    if (!latest) return std::nullopt;
    return latest->path;
  }
  if (resume.kind == ResumeFrom::Kind::Step) {
    CheckpointEntry entry;
    entry.step = resume.step;
    entry.path = checkpoints_dir / step_directory_name(resume.step);
    judge(entry);
    if (entry.valid) return entry.path;
    std::string have;
    for (const CheckpointEntry& other : list_checkpoints(checkpoints_dir)) {
      if (other.valid) have += fmt::format("{}{}", have.empty() ? "" : ", ", other.step);
    }
    throw InputError(
        "checkpoint",
        fmt::format("resume = {}: {}; valid steps in {}: {}", resume.step, entry.problem,
                    checkpoints_dir.string(), have.empty() ? "none" : have));
  }
  if (fs::exists(resume.path / kManifestName)) return resume.path;
  for (const fs::path& dir : {checkpoints_dir_of(resume.path), resume.path}) {
    if (const auto latest = find_latest(dir, skipped)) return latest->path;
  }
  throw InputError(
      "checkpoint",
      fmt::format("resume = \"{}\": neither a checkpoint nor a run with a "
                  "valid one; give \"latest\", \"never\", a step or such a path",
                  resume.path.string()));
}

fs::path checkpoints_dir_of(const fs::path& run_dir) {
  const fs::path config = run_dir / "config.toml";
  std::error_code error;
  if (fs::is_regular_file(config, error)) {
    try {
      const fs::path dir = load_run_config(config).config.checkpoint.dir;
      if (!dir.empty()) return dir;
    } catch (const Error&) {
      // A config of another release: the default place is still the best guess.
    }
  }
  return run_dir / "checkpoints";
}

std::optional<fs::path> find_checkpoint(const fs::path& path) {
  if (fs::exists(path / kManifestName)) return path;
  for (const fs::path& dir : {checkpoints_dir_of(path), path}) {
    if (const auto latest = find_latest(dir)) return latest->path;
  }
  return std::nullopt;
}

}  // namespace longhaul::checkpoint
