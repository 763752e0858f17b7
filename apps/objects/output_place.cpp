#include "apps/objects/output_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/program.h"
#include "longhaul/base/counted.h"
#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/data/bert/bert_record.h"
#include "longhaul/objects/local_copy.h"
#include "longhaul/objects/readable.h"
#include "longhaul/run/files.h"
#include "longhaul/system/run_on_threads.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::apps {
namespace {

/// Files that make a directory count, so that they come after all others, in this order.
constexpr std::array<std::string_view, 7> kLast{
    "model.safetensors.index.json", "config.json", "state.json",      "dataset_info.json",
    data::kBertRecordName,          "store.json",  run::kManifestFile};
/// An object that shows whether one can be made.
constexpr std::string_view kProbe = ".longhaul-probe";
constexpr int kFilesAtOnce = 4;

std::vector<fs::path> files_below(const fs::path& dir) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  const auto rank = [](const fs::path& file) {
    const auto* found = std::ranges::find(kLast, file.filename().string());
    return found == kLast.end() ? 0 : 1 + std::distance(kLast.begin(), found);
  };
  std::ranges::sort(files, [&](const fs::path& a, const fs::path& b) {
    return std::pair(rank(a), a) < std::pair(rank(b), b);
  });
  return files;
}

bool comes_last(const fs::path& file) {
  return std::ranges::find(kLast, file.filename().string()) != kLast.end();
}

std::vector<objects::Address> objects_below(const objects::Address& address) {
  std::vector<objects::Address> found;
  for (auto& object : objects::shared_store()->list(address, /*versions=*/false)) {
    found.push_back(std::move(object.address));
  }
  return found;
}

/// Returns where a file of a directory goes that is copied to an address.
objects::Address place_of(const fs::path& file, const fs::path& dir,
                          const objects::Address& to) {
  return to / file.lexically_relative(dir).generic_string();
}

/// Throws where no object can be made and deleted below an address.
void prove_writable(const objects::Address& address) {
  const objects::Address probe = address / kProbe;
  objects::shared_store()->put_text("may be deleted\n", probe);
  objects::shared_store()->remove(probe);
}

/// Copies the files of a directory to an address, where they replace the objects `old`.
/// `state` always says what is there. What makes the old ones count goes first, since no
/// reader may take a mixture for whole, and what the new ones have no name for goes last.
void replace_objects(const std::vector<objects::Address>& old, const fs::path& dir,
                     const objects::Address& to, std::string& state) {
  const auto store = objects::shared_store();
  const std::vector<fs::path> files = files_below(dir);
  const system::Stopwatch watch;
  uint64_t bytes = 0;
  std::set<std::string> keys;
  for (const fs::path& file : files) {
    bytes += fs::file_size(file);
    keys.insert(place_of(file, dir, to).key);
  }
  state = fmt::format("{} has not all new files, and counts as nothing yet{}", to.text(),
                      old.empty() ? "" : "; what was there before is lost");
  for (const objects::Address& one : old) {
    if (comes_last(one.key)) store->remove(one);
  }
  const auto put = [&](const fs::path& file) {
    store->put(file, place_of(file, dir, to));
  };
  const auto first_last = std::ranges::find_if(files, comes_last);
  system::share_among_threads(std::distance(files.begin(), first_last), kFilesAtOnce,
                              [&](int64_t i) { put(files[static_cast<size_t>(i)]); });
  std::for_each(first_last, files.end(), put);
  state = to.text() + " has all new files, and may still have old ones beside them";
  for (const objects::Address& one : old) {
    if (!comes_last(one.key) && !keys.contains(one.key)) store->remove(one);
  }
  fmt::print(stderr, "uploaded {}, {}, to {} in {:.1f} s\n",
             counted(std::ssize(files), "file"), human_bytes(bytes), to.text(),
             watch.seconds());
}

}  // namespace

OutputPlace::OutputPlace(const std::string& named, const OutputUse& use) : path_(named) {
  if (!objects::is_address(named)) return;
  const objects::Address address = objects::parse_address(named);
  if (address.key.empty()) {
    throw InputError("objects", named +
                                    ": names a whole bucket; add a key to write "
                                    "below, as s3://BUCKET/KEY");
  }
  if (use.processes > 1) {
    throw InputError(
        "objects",
        fmt::format("{}: {} processes share this work, and only one may write to an "
                    "address; start one, or give a path that all of them see",
                    named, use.processes));
  }
  const fs::path parent = objects::default_cache().parent_path() / "uploads" /
                          hash_hex(address.text()).substr(0, 16);
  const fs::path whole = parent / fs::path(address.key).filename();
  path_ = whole.string();
  begun_ = parent.string() + ".begun";
  places_.push_back({path_, address});
  if (!use.beside.empty()) {
    places_.push_back({path_ + use.beside, {address.bucket, address.key + use.beside}});
  }
  replaces_ = use.replaces;
  std::ifstream keys(begun_);
  for (std::string key; std::getline(keys, key);) {
    if (ours_.empty()) last_ = key;
    ours_.insert(key);
  }
  for (const Place& place : places_) {
    if (!object_to_keep(objects_below(place.address), place.address)) continue;
    throw InputError(
        "objects",
        fmt::format("{}: objects lie there already{}; name another address, "
                    "or delete them first",
                    place.address.text(),
                    replaces_.empty()
                        ? ""
                        : fmt::format(" without a {}, and are not replaced", replaces_)));
  }
  if (!use.goes_on) {
    for (const Place& place : places_) fs::remove_all(place.dir);
  }
  fs::create_directories(parent);
}

std::optional<objects::Address> OutputPlace::object_to_keep(
    const std::vector<objects::Address>& there, const objects::Address& address) const {
  // With its last object an upload is whole, whoever has made that, and is not ours to
  // replace.
  const auto is_last = [&](const objects::Address& one) { return one.key == last_; };
  const bool goes_on = !ours_.empty() && std::ranges::none_of(there, is_last);
  const auto replaced = [&](const objects::Address& one) {
    if (goes_on) return ours_.contains(one.key);
    return !replaces_.empty() && one == address / replaces_;
  };
  if (!goes_on && std::ranges::any_of(there, replaced)) return std::nullopt;
  const auto kept = std::ranges::find_if_not(there, replaced);
  return kept == there.end() ? std::nullopt : std::optional(*kept);
}

void OutputPlace::upload() const {
  if (places_.empty()) return;
  std::vector<std::vector<objects::Address>> old;
  std::string state = "nothing was changed at " + places_.front().address.text();
  try {
    std::string keys;
    const Place& last = places_.back();
    keys += place_of(files_below(last.dir).back(), last.dir, last.address).key + "\n";
    for (const auto& [dir, to] : places_) {
      old.push_back(objects_below(to));
      if (const auto kept = object_to_keep(old.back(), to)) {
        fail_input("objects",
                   "{}: lies where {} is to be written, and is not replaced; delete it "
                   "and start again",
                   kept->text(), to.text());
      }
      if (!old.back().empty()) prove_writable(to);
      keys += (to / kProbe).key + "\n";
      for (const fs::path& file : files_below(dir)) {
        keys += place_of(file, dir, to).key + "\n";
      }
      for (const objects::Address& one : old.back()) keys += one.key + "\n";
    }
    write_text_durable(begun_, keys);
    for (size_t i = 0; i < places_.size(); ++i) {
      replace_objects(old[i], places_[i].dir, places_[i].address, state);
    }
  } catch (...) {
    say_warning(fmt::format(
        "{}. What was made stays in {} until the same command makes it anew, or goes on "
        "with it",
        state, path_));
    throw;
  }
  for (const Place& place : places_) fs::remove_all(place.dir);
  fs::remove(begun_);
  std::error_code not_empty;
  fs::remove(fs::path(path_).parent_path(), not_empty);
}

}  // namespace longhaul::apps
