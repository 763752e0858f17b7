#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/mirror/mirror_writer.h"
#include "longhaul/run/files.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/rank_threads.h"

namespace longhaul::testing {

inline constexpr int kMirrorRanks = 2;
inline const std::string kMirrorRun(32, 'a');

/// A store whose objects are files of a directory. A test may plant what a read returns.
class DirectoryStore : public checkpoint::MirrorStore {
 public:
  std::string place() const override { return "s3://bucket/run"; }

  std::vector<Entry> list(const std::string& below) override {
    listed.push_back(below);
    std::vector<Entry> entries;
    const fs::path from = below.empty() ? dir_.path() : dir_ / below;
    if (!fs::exists(from)) return entries;
    for (const auto& file : fs::recursive_directory_iterator(from)) {
      if (!file.is_regular_file()) continue;
      entries.push_back(
          {fs::relative(file.path(), dir_.path()).string(), file.file_size()});
    }
    std::ranges::sort(entries, {}, [](const Entry& entry) { return entry.name; });
    return entries;
  }

  std::string put(const fs::path& from, const std::string& name) override {
    const bool waits = !held_below.empty() && name.starts_with(held_below);
    while ((held || waits) && !stopped) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const bool away = name == refused && refusals-- > 0;
    if (stopped || away) throw TemporaryError("objects", "the store is away");
    const std::string text = longhaul::read_text(from);
    const std::lock_guard lock(mutex);
    write_file(dir_ / name, text);
    order.push_back(name);
    return checkpoint::Manifest::FileEntry::of(name, text).hash;
  }

  std::string fetch(const std::string& name, const fs::path& to) override {
    if (name == refused) throw TemporaryError("objects", "the store is away");
    std::string text = longhaul::read_text(dir_ / name);
    if (name == flipped) {
      text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
      flipped.clear();
    }
    write_file(to, text);
    return checkpoint::Manifest::FileEntry::of(name, text).hash;
  }

  void put_text(const std::string& text, const std::string& name) override {
    const std::lock_guard lock(mutex);
    write_file(dir_ / name, text);
    order.push_back(name);
  }

  std::optional<std::string> read_text(const std::string& name) override {
    if (name == denied) throw InputError("objects", "no permission");
    texts_read.push_back(name);
    if (!fs::exists(dir_ / name)) return std::nullopt;
    return longhaul::read_text(dir_ / name);
  }

  void remove(const std::string& name) override {
    const std::lock_guard lock(mutex);
    if (lost_removals > 0) {
      --lost_removals;
      throw TemporaryError("objects", "the store is away");
    }
    fs::remove(dir_ / name);
    removed.push_back(name);
  }
  void remove_all(const std::string& below) override {
    const std::lock_guard lock(mutex);
    fs::remove_all(dir_ / below);
    removed.push_back(below);
  }
  void stop() override { stopped = true; }
  int64_t retries() const override { return 0; }

  bool has(const std::string& name) const { return fs::exists(dir_ / name); }
  fs::path path(const std::string& name) const { return dir_ / name; }

  std::string denied;                ///< read_text() throws for this name
  std::string refused;               ///< fetch() and put() throw for this name
  std::string flipped;               ///< fetch() of this name brings a wrong bit once
  std::atomic<int> refusals = 1000;  ///< put() does so only so often
  std::atomic<bool> held = false;    ///< put() waits while this is true
  std::string held_below;  ///< put() of such a name waits until the store is stopped
  int lost_removals = 0;   ///< remove() throws so often
  std::vector<std::string> order;
  std::vector<std::string> removed;
  std::vector<std::string> listed;
  std::vector<std::string> texts_read;
  std::mutex mutex;
  std::atomic<bool> stopped = false;

 private:
  TempDir dir_;
};

inline std::string in_step(int64_t step, const std::string& name) {
  return run::step_directory_name(step) + "/" + name;
}

inline fs::path saved(const fs::path& dir, int64_t step, int attempt) {
  run_ranks(kMirrorRanks, [&](comm::Communicator& world) {
    save_now(dir, step, attempt, flat_share(world.rank(), kMirrorRanks).tensors, world,
             {{"step", step}}, side_files());
  });
  return dir / run::step_directory_name(step);
}

/// Saves a step and mirrors it, each rank its files.
inline fs::path mirrored(DirectoryStore& store, const fs::path& dir, int64_t step,
                         int attempt) {
  const fs::path path = saved(dir, step, attempt);
  const checkpoint::Manifest manifest = checkpoint::Manifest::read(path);
  checkpoint::MirrorListing listing(store);
  checkpoint::begin_mirror_step(listing, manifest, attempt);
  for (int rank = 0; rank < kMirrorRanks; ++rank) {
    checkpoint::send_mirror_files(store, path, manifest, rank, kMirrorRanks);
  }
  checkpoint::end_mirror_step(listing, manifest, 0.0);
  return path;
}

/// Returns the whole checkpoints of a mirror, the newest first. `skipped` is used as in
/// MirrorListing::read.
inline std::vector<checkpoint::MirrorStep> list_mirror(
    checkpoint::MirrorStore& store, std::vector<std::string>* skipped = nullptr) {
  const checkpoint::MirrorListing listing(store);
  std::vector<checkpoint::MirrorStep> found;
  for (const int64_t step : listing.steps()) {
    if (auto whole = listing.read(step, skipped)) found.push_back(*std::move(whole));
  }
  return found;
}

inline std::vector<int64_t> steps_of(DirectoryStore& store) {
  std::vector<int64_t> steps;
  for (const auto& found : list_mirror(store)) steps.push_back(found.step);
  return steps;
}

}  // namespace longhaul::testing
