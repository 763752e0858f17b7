#include "longhaul/checkpoint/mirror/mirror_reader.h"

#include <fmt/format.h>

#include <chrono>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/run/files.h"

namespace longhaul::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;
const std::string kFetchedPrefix = ".fetched_";
constexpr auto kBetweenLines = std::chrono::seconds(10);

/// Makes the directories of a file below `dir`, and notes them.
void make_parents(const fs::path& dir, const fs::path& file, std::set<fs::path>& made) {
  fs::create_directories(file.parent_path());
  for (fs::path path = file.parent_path(); path != dir; path = path.parent_path()) {
    made.insert(path);
  }
  made.insert(dir);
}

void fetch_files(MirrorStore& store, const MirrorStep& from, const fs::path& into,
                 const std::function<void(const std::string&)>& tell) {
  const uint64_t total = from.manifest.total_bytes();
  std::set<fs::path> made;
  uint64_t come = 0;
  auto next = Clock::now() + kBetweenLines;
  for (const Manifest::FileEntry& file : from.manifest.files()) {
    const fs::path path = join_inside(into, file.name, "mirror");
    const std::string name = run::step_directory_name(from.step) + "/" + file.name;
    make_parents(into, path, made);
    std::string hash = store.fetch(name, path);
    if (hash != file.hash) {
      // The bytes may have changed on the way from the store. So the file is fetched once
      // more.
      fs::remove(path);
      hash = store.fetch(name, path);
    }
    if (hash != file.hash) {
      fail_input("mirror",
                 "{}/{}: its bytes have hash {}, and the manifest says {}: the copy in "
                 "the mirror is damaged",
                 store.place(), name, hash, file.hash);
    }
    check_file_size(into, file);
    come += file.size;
    if (!tell || Clock::now() < next) continue;
    next = Clock::now() + kBetweenLines;
    tell(fmt::format("step {} of the mirror: {} of {}", from.step, human_bytes(come),
                     human_bytes(total)));
  }
  for (const fs::path& path : made) sync_directory(path);
}

}  // namespace

fs::path fetch_checkpoint(MirrorStore& store, const MirrorStep& from,
                          const fs::path& checkpoints,
                          const std::function<void(const std::string&)>& tell,
                          const std::function<void()>& complete) {
  const std::string name = run::step_directory_name(from.step);
  const fs::path step_dir = checkpoints / name;
  set_stranger_aside(step_dir, from.manifest.run);
  if (fs::exists(step_dir / run::kManifestFile)) {
    fail_input("mirror", "{} is there already; it is not replaced", step_dir.string());
  }
  // A start takes a directory of this name neither for a checkpoint nor for one that was
  // set aside.
  const fs::path temporary = checkpoints / (kFetchedPrefix + name);
  make_directories_durable(checkpoints);
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    const std::string of = entry.path().filename().string();
    if (of.starts_with(kFetchedPrefix)) fs::remove_all(entry.path());
  }
  fs::create_directory(temporary);
  ScratchPath scratch(temporary);
  fetch_files(store, from, temporary, tell);
  scratch.keep();
  fs::remove_all(step_dir);  // removes the rest of a save that never ended
  fs::rename(temporary, step_dir);
  sync_directory(checkpoints);
  if (complete) complete();
  write_text_atomic(step_dir / run::kManifestFile, from.manifest_text);
  return step_dir;
}

}  // namespace longhaul::checkpoint
