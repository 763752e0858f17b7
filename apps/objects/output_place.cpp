#include "apps/objects/output_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

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

/// Returns what lies below an address. What makes it count comes first: without it the
/// rest is no store, model or checkpoint while it is replaced.
std::vector<objects::Address> objects_below(const objects::Address& address) {
  std::vector<objects::Address> found;
  for (auto& object : objects::shared_store()->list(address, /*versions=*/false)) {
    found.push_back(std::move(object.address));
  }
  std::ranges::stable_partition(
      found, [](const objects::Address& one) { return comes_last(one.key); });
  return found;
}

/// Returns one of the objects `there`, which lie below an address, that must stay. Where
/// a file of `records` lies at the top, none must, and else those that are not `names`.
template <typename Records>
std::optional<objects::Address> object_to_keep(const std::vector<objects::Address>& there,
                                               const objects::Address& address,
                                               const Records& records,
                                               const std::set<std::string>& names) {
  const size_t outside = address.key.size() + 1;
  std::optional<objects::Address> kept;
  for (const objects::Address& one : there) {
    const std::string name = one.key.substr(outside);
    if (std::ranges::find(records, name) != std::ranges::end(records)) {
      return std::nullopt;
    }
    if (!kept && !names.contains(name)) kept = one;
  }
  return kept;
}

/// Deletes the objects `old` and copies the files of a directory to an address.
void replace_objects(const std::vector<objects::Address>& old, const fs::path& dir,
                     const objects::Address& to) {
  const auto store = objects::shared_store();
  const std::vector<fs::path> files = files_below(dir);
  const system::Stopwatch watch;
  uint64_t bytes = 0;
  for (const fs::path& file : files) bytes += fs::file_size(file);
  for (const objects::Address& one : old) store->remove(one);
  const auto put = [&](const fs::path& file) {
    store->put(file, to / file.lexically_relative(dir).generic_string());
  };
  const auto first_last = std::ranges::find_if(files, comes_last);
  system::share_among_threads(std::distance(files.begin(), first_last), kFilesAtOnce,
                              [&](int64_t i) { put(files[static_cast<size_t>(i)]); });
  std::for_each(first_last, files.end(), put);
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
  if (!use.replaces.empty()) replaced_.push_back(use.replaces);
  // An upload that was ended has left objects. A directory alone does not say that: the
  // objects beside it may be of another program.
  goes_on_ = fs::exists(begun_);
  for (const Place& place : places_) {
    if (goes_on_) break;
    if (!object_to_keep(objects_below(place.address), place.address, replaced_, {})) {
      continue;
    }
    throw InputError(
        "objects",
        fmt::format("{}: objects lie there already{}; name another address, "
                    "or delete them first",
                    place.address.text(),
                    replaced_.empty() ? ""
                                      : fmt::format(" without a {}, and are not replaced",
                                                    replaced_.front())));
  }
  if (!use.goes_on) {
    for (const Place& place : places_) fs::remove_all(place.dir);
  }
  fs::create_directories(parent);
}

void OutputPlace::upload() const {
  std::vector<std::vector<objects::Address>> old;
  for (const Place& place : places_) {
    const auto& [dir, to] = place;
    old.push_back(objects_below(to));
    std::set<std::string> names;
    for (const fs::path& file : files_below(dir)) {
      names.insert(file.lexically_relative(dir).generic_string());
    }
    const auto kept = goes_on_ ? object_to_keep(old.back(), to, kLast, names)
                               : object_to_keep(old.back(), to, replaced_, {});
    if (!kept) continue;
    throw InputError(
        "objects",
        fmt::format("{}: lies where {} is to be written, and is not replaced; delete it "
                    "and start again. What was made is in {}",
                    kept->text(), to.text(), dir.string()));
  }
  if (places_.empty()) return;
  write_text_durable(begun_, places_.front().address.text() + "\n");
  for (size_t i = 0; i < places_.size(); ++i) {
    replace_objects(old[i], places_[i].dir, places_[i].address);
  }
  fs::remove(begun_);
  for (const Place& place : places_) fs::remove_all(place.dir);
}

}  // namespace longhaul::apps
