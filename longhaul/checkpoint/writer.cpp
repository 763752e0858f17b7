#include "longhaul/checkpoint/writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/rank_file.h"
#include "longhaul/checkpoint/run_lock.h"

namespace longhaul::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What a part of a save that may fail left behind, in a form that ranks can exchange.
struct Outcome {
  std::string error;
  bool temporary = true;

  template <typename Action>
  static Outcome of(Action action) {
    try {
      action();
      return {};
    } catch (const Error& error) {
      return {error.what(), error.kind() == ErrorKind::Temporary};
    } catch (const fs::filesystem_error& error) {
      const int code = error.code().value();
      return {error.what(),
              code == ENOSPC || code == EDQUOT || code == EIO || code == ESTALE};
    } catch (const std::exception& error) {  // memory
      return {error.what(), true};
    }
  }
  Json to_json() const { return {{"error", error}, {"temporary", temporary}}; }
  static Outcome from_json(const Json& json) {
    return {json.at("error").get<std::string>(), json.at("temporary").get<bool>()};
  }
  void raise(int64_t step) const {
    if (error.empty()) return;
    const std::string message = fmt::format(
        "step {} was not saved: {}; earlier checkpoints are untouched", step, error);
    if (temporary) throw TemporaryError("checkpoint", message);
    throw InputError("checkpoint", message);
  }
};

Json to_json(const RankFiles& files) {
  Json items = Json::array();
  for (const RankFiles::Item& item : files.items) {
    items.push_back({{"name", item.name}, {"size", item.size}, {"hash", item.hash}});
  }
  return {{"items", items}, {"error", files.error}, {"temporary", files.temporary}};
}

Manifest::FileEntry entry_of(const Json& json) {
  return {json.at("name").get<std::string>(), json.at("size").get<uint64_t>(),
          json.at("hash").get<std::string>()};
}

// The first failure in rank order, with how many ranks failed.
Outcome first_failure(const std::vector<Json>& ranks) {
  Outcome result;
  int failed = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto error = ranks[r].at("error").get<std::string>();
    if (error.empty()) continue;
    if (++failed == 1) {
      result = {fmt::format("rank {}: {}", r, error),
                ranks[r].at("temporary").get<bool>()};
    }
  }
  if (failed > 1) result.error += fmt::format(" ({} ranks failed)", failed);
  return result;
}

bool dir_has_prefix(const fs::path& dir, const std::string& prefix) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().filename().string().starts_with(prefix)) return true;
  }
  return false;
}

// Names for this save's files that no file of the directory has.
std::string free_prefix(const fs::path& dir, int attempt) {
  std::string prefix = fmt::format("a{}_", attempt);
  for (int n = 2; dir_has_prefix(dir, prefix); ++n)
    prefix = fmt::format("a{}r{}_", attempt, n);
  return prefix;
}

Manifest::FileEntry write_durable(const fs::path& dir, const std::string& name,
                                  std::string_view text) {
  File file = File::create(dir / name);
  file.write(text);
  file.sync();
  file.close();
  return {name, text.size(), file_hash(dir / name)};
}

std::vector<Manifest::FileEntry> write_hf(const fs::path& dir, const std::string& hf_dir,
                                          const std::vector<CarriedFile>& files) {
  std::vector<Manifest::FileEntry> entries;
  std::set<fs::path> dirs = {dir / hf_dir};
  fs::create_directories(dir / hf_dir);
  for (const CarriedFile& file : files) {
    const std::string name = hf_dir + "/" + file.name;
    const fs::path path = join_inside(dir / hf_dir, file.name, "checkpoint");
    fs::create_directories(path.parent_path());
    dirs.insert(path.parent_path());
    if (file.source.empty()) {
      entries.push_back(write_durable(dir, name, file.text));
    } else {
      copy_file_durable(file.source, path);
      entries.push_back({name, fs::file_size(path), file_hash(path)});
    }
  }
  for (const fs::path& made : dirs) sync_directory(made);
  return entries;
}

// After a replaced manifest: whatever it does not name belonged to the one before.
void remove_unnamed(const fs::path& dir, const Manifest& manifest) {
  std::set<std::string> named = {kManifestName, manifest.hf_dir};
  for (const Manifest::FileEntry& file : manifest.files()) named.insert(file.name);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    if (!named.contains(entry.path().filename().string())) {
      fs::remove_all(entry.path(), ignored);
    }
  }
}

// Removes what this save wrote; of a step that holds no other checkpoint, everything.
void remove_partial(const CheckpointWriter::Target& target) noexcept {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(target.dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!target.replaces || name.starts_with(target.prefix)) {
      fs::remove_all(entry.path(), ignored);
    }
  }
  if (!target.replaces) fs::remove(target.dir, ignored);
}

}  // namespace

Capture Capture::borrow(int64_t step, std::vector<StateTensor> mine) {
  Capture capture;
  capture.step_ = step;
  capture.tensors_ = std::move(mine);
  return capture;
}

Capture Capture::copy(int64_t step, const std::vector<StateTensor>& mine) {
  Capture capture;
  capture.step_ = step;
  for (const StateTensor& tensor : mine) {
    capture.storage_.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
    capture.tensors_.push_back({tensor.kind, tensor.slice, capture.storage_.back()});
  }
  return capture;
}

CheckpointWriter::Target CheckpointWriter::begin(int64_t step,
                                                 comm::Communicator& world) {
  Target target;
  target.dir = options_.dir / step_directory_name(step);
  std::string message;
  if (world.rank() == 0) {
    const Outcome outcome = Outcome::of([&] {
      if (options_.lock != nullptr) options_.lock->check();
      fs::create_directories(target.dir);
      target.replaces = fs::exists(target.dir / kManifestName);
      if (!target.replaces) {
        // Left by a write that never ended.
        for (const auto& entry : fs::directory_iterator(target.dir)) {
          fs::remove_all(entry.path());
        }
      }
      target.prefix = free_prefix(target.dir, options_.attempt);
      sync_directory(options_.dir);
    });
    Json json = outcome.to_json();
    json["prefix"] = target.prefix;
    json["replaces"] = target.replaces;
    message = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  }
  const Json json = Json::parse(world.broadcast_string(message, 0));
  target.prefix = json.at("prefix").get<std::string>();
  target.replaces = json.at("replaces").get<bool>();
  Outcome::from_json(json).raise(step);
  return target;
}

RankFiles CheckpointWriter::write_rank(const Target& target, const Capture& capture,
                                       int rank) const {
  RankFiles files;
  const Outcome outcome = Outcome::of([&] {
    files.items = write_rank_files(target.dir, rank_file_stem(target.prefix, rank), rank,
                                   capture.tensors());
  });
  files.error = outcome.error;
  files.temporary = outcome.temporary;
  return files;
}

SaveReport CheckpointWriter::commit(const Target& target, const RankFiles& mine,
                                    int64_t step, const Json& state,
                                    const std::vector<CarriedFile>& hf,
                                    comm::Communicator& world) {
  const auto start = Clock::now();
  std::vector<Json> ranks;
  for (const std::string& text : world.gather_strings(
           to_json(mine).dump(-1, ' ', true, Json::error_handler_t::replace))) {
    ranks.push_back(Json::parse(text));
  }
  Outcome outcome = first_failure(ranks);
  uint64_t bytes = 0;
  if (world.rank() == 0) {
    bool mine_to_remove = true;
    if (outcome.error.empty()) {
      outcome = Outcome::of([&] {
        if (options_.lock != nullptr) {
          mine_to_remove = false;  // another attempt may own the directory by now
          options_.lock->check();
          mine_to_remove = true;
        }
        Manifest manifest;
        manifest.step = step;
        manifest.attempt = options_.attempt;
        manifest.build = options_.build;
        manifest.saved_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                        fmt::gmtime(std::chrono::system_clock::to_time_t(
                                            std::chrono::system_clock::now())));
        manifest.layout = options_.layout;
        // A replaced step keeps its own state.json and hf/ until the manifest changes.
        const std::string prefix = target.replaces ? target.prefix : "";
        manifest.hf_dir = prefix + "hf";
        for (const Json& rank : ranks) {
          manifest.ranks.push_back(
              {entry_of(rank.at("items").at(0)), entry_of(rank.at("items").at(1))});
        }
        manifest.hf = write_hf(target.dir, manifest.hf_dir, hf);
        manifest.state = write_durable(target.dir, prefix + "state.json", state.dump());
        sync_directory(target.dir);
        if (options_.lock != nullptr) options_.lock->check();
        write_text_atomic(target.dir / kManifestName, manifest.to_json().dump(1));
        if (target.replaces) remove_unnamed(target.dir, manifest);
        bytes = manifest.total_bytes();
      });
    }
    if (!outcome.error.empty() && mine_to_remove) remove_partial(target);
  }
  Json verdict = outcome.to_json();
  verdict["bytes"] = bytes;
  verdict = Json::parse(world.broadcast_string(
      verdict.dump(-1, ' ', true, Json::error_handler_t::replace), 0));
  Outcome::from_json(verdict).raise(step);
  return {verdict.at("bytes").get<uint64_t>(), seconds_since(start), target.dir};
}

SaveReport CheckpointWriter::save(int64_t step, const std::vector<StateTensor>& mine,
                                  const Json& state, const std::vector<CarriedFile>& hf,
                                  comm::Communicator& world) {
  const auto start = Clock::now();
  const Target target = begin(step, world);
  const RankFiles files = write_rank(target, Capture::borrow(step, mine), world.rank());
  SaveReport report = commit(target, files, step, state, hf, world);
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace longhaul::checkpoint
