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

/// Returns an object that no call of these verbs has written: no store, model or
/// checkpoint lies at the address, and the object is none of `names` below it.
std::optional<objects::Address> foreign_object(const std::vector<objects::Address>& there,
                                               const objects::Address& address,
                                               const std::set<std::string>& names) {
  const size_t outside = address.key.size() + 1;
  std::optional<objects::Address> foreign;
  for (const objects::Address& one : there) {
    const std::string name = one.key.substr(outside);
    if (std::ranges::find(kLast, name) != kLast.end()) return std::nullopt;
    if (!foreign && !names.contains(name)) foreign = one;
  }
  return foreign;
}

void upload_directory(const fs::path& dir, const objects::Address& to) {
  const auto store = objects::shared_store();
  const std::vector<fs::path> files = files_below(dir);
  const system::Stopwatch watch;
  uint64_t bytes = 0;
  for (const fs::path& file : files) bytes += fs::file_size(file);
  const auto address_of = [&](const fs::path& file) {
    return to / file.lexically_relative(dir).generic_string();
  };
  const std::vector<objects::Address> there = objects_below(to);
  std::set<std::string> names;
  for (const fs::path& file : files) {
    names.insert(file.lexically_relative(dir).generic_string());
  }
  if (const auto foreign = foreign_object(there, to, names)) {
    throw InputError(
        "objects",
        fmt::format(
            "{}: lies where {} is to be written, and is no part of a store, model "
            "or checkpoint; delete it and start again. What was made is in {}",
            foreign->text(), to.text(), dir.string()));
  }
  for (const objects::Address& old : there) store->remove(old);
  const auto put = [&](const fs::path& file) { store->put(file, address_of(file)); };
  const auto first_last = std::ranges::find_if(files, comes_last);
  system::share_among_threads(std::distance(files.begin(), first_last), kFilesAtOnce,
                              [&](int64_t i) { put(files[static_cast<size_t>(i)]); });
  std::for_each(first_last, files.end(), put);
  fmt::print(stderr, "uploaded {}, {}, to {} in {:.1f} s\n",
             counted(std::ssize(files), "file"), human_bytes(bytes), to.text(),
             watch.seconds());
  fs::remove_all(dir);
}

}  // namespace

OutputPlace::OutputPlace(const std::string& named, const OutputUse& use)
    : named_(named), path_(named), is_address_(objects::is_address(named)) {
  if (!is_address_) return;
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
  named_ = address.text();
  const fs::path whole = objects::default_cache().parent_path() / "uploads" /
                         hash_hex(named_).substr(0, 16) /
                         fs::path(address.key).filename();
  path_ = whole.string();
  // Objects may lie there already where an upload was ended, which left the directory.
  const bool was_here = fs::exists(whole);
  const std::vector<objects::Address> there =
      was_here ? std::vector<objects::Address>() : objects_below(address);
  if (use.replaces ? foreign_object(there, address, {}).has_value() : !there.empty()) {
    throw InputError(
        "objects",
        fmt::format("{}: objects lie there already{}; name another address, "
                    "or delete them first",
                    named,
                    use.replaces ? " that are no store, and are not replaced" : ""));
  }
  if (!use.goes_on) fs::remove_all(whole);
  fs::create_directories(whole.parent_path());
}

void OutputPlace::upload(const fs::path& beside) const {
  if (!is_address_) return;
  const objects::Address address = objects::parse_address(named_);
  upload_directory(path_, address);
  if (beside.empty()) return;
  const std::string ending = beside.string().substr(path_.size());
  upload_directory(beside, {address.bucket, address.key + ending});
}

}  // namespace longhaul::apps
