#include "apps/objects/output_place.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "apps/program.h"
#include "longhaul/base/counted.h"
#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/data/bert/bert_record.h"
#include "longhaul/objects/local_copy.h"
#include "longhaul/run/files.h"
#include "longhaul/system/run_on_threads.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::apps {
namespace {

/// Files that make a directory count, so that they come after all others, in this order.
constexpr std::array<std::string_view, 7> kLast{
    "model.safetensors.index.json", "config.json", "state.json",      "dataset_info.json",
    data::kBertRecordName,          "store.json",  run::kManifestFile};
/// An object that says whose upload is under way, and shows whether one can be made.
constexpr std::string_view kClaim = ".longhaul-upload";
constexpr int kFilesAtOnce = 4;
constexpr auto kLockWait = std::chrono::milliseconds(10);

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

/// Returns all objects below an address, without an upload's claim.
std::vector<objects::Address> objects_below(objects::ObjectStore& store,
                                            const objects::Address& address) {
  std::vector<objects::Address> found;
  for (auto& object : store.list(address, /*versions=*/false)) {
    if (object.address == address / kClaim) continue;
    found.push_back(std::move(object.address));
  }
  return found;
}

/// Returns whether an object lies in a directory below an address.
bool is_deeper(const objects::Address& object, const objects::Address& address) {
  return object.key.find('/', address.key.size() + 1) != std::string::npos;
}

/// Returns whether one address lies below the other.
bool overlap(const objects::Address& one, const objects::Address& other) {
  return one.bucket == other.bucket &&
         (one.key.starts_with(other.key + "/") || other.key.starts_with(one.key + "/"));
}

/// Throws InputError where an object has the very name of an address to write to: whoever
/// reads the address gets that object.
void refuse_object(objects::ObjectStore& store, const objects::Address& address) {
  if (!store.look(address)) return;
  fail_input("objects",
             "{}: an object of this name is there, which readers would get in place of "
             "what is written; name another address, or delete it first",
             address.text());
}

/// Returns where a file of a directory goes that is copied to an address.
objects::Address place_of(const fs::path& file, const fs::path& dir,
                          const objects::Address& to) {
  return to / file.lexically_relative(dir).generic_string();
}

/// Returns the name of what belongs to an address among the uploads of this machine.
std::string uploads_name(const objects::Address& address) {
  return hash_hex(address.text()).substr(0, 16);
}

std::string new_token() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}\n", source(), source(), source(),
                     source());
}

/// Claims an address for an upload, and shows that objects can be made and deleted there.
/// A store has no locks, so another upload loses its claim: it may have died.
void claim(objects::ObjectStore& store, const objects::Address& address,
           const std::string& token) {
  store.put_text(token, address / kClaim);
  store.remove(address / kClaim);
  store.put_text(token, address / kClaim);
}

using Versions = std::map<std::string, std::string>;  ///< of objects, by their keys

/// Returns an object that shows that below an address there is more than what an upload
/// has sent, or less; nothing where there is just that. A claim that is there has to have
/// this token.
std::optional<objects::Address> sign_of_another(objects::ObjectStore& store,
                                                const objects::Address& to,
                                                const std::string& token,
                                                const Versions& sent) {
  Versions absent = sent;
  for (const objects::ObjectInfo& one : store.list(to, /*versions=*/true)) {
    if (one.address == to / kClaim) continue;
    const auto found = absent.find(one.address.key);
    if (found == absent.end() || found->second != one.version) return one.address;
    absent.erase(found);
  }
  if (!absent.empty()) return objects::Address{to.bucket, absent.begin()->first};
  if (store.read_text(to / kClaim).value_or("") != token) return to / kClaim;
  return std::nullopt;
}

/// Ends an upload where sign_of_another() finds something. What lies at the address may
/// be of two uploads, so that it must not count. Its claim tells the other one the same.
/// What counts below the address, in a directory that is not of this upload, stays.
void refuse_mixture(objects::ObjectStore& store, const objects::Address& to,
                    const std::string& token, const Versions& sent, std::string& state) {
  const auto sign = sign_of_another(store, to, token, sent);
  if (!sign) return;
  state = to.text() + " may have files of two uploads";
  store.put_text("two uploads\n", to / kClaim);
  for (const objects::Address& one : objects_below(store, to)) {
    const bool ours = !is_deeper(one, to) || sent.contains(one.key);
    if (ours && comes_last(one.key)) store.remove(one);
  }
  state += ", and counts as nothing";
  fail_input("objects",
             "{}: another command has been uploading to it meanwhile, as {} shows; "
             "delete what the two have left, and start one of the two again",
             to.text(), sign->text());
}

/// Copies the files of a directory to an address that was claimed, where they replace the
/// objects `old`. `state` always says what is there. What makes the old ones count goes
/// first, since no reader may take a mixture for whole.
void replace_objects(objects::ObjectStore& store,
                     const std::vector<objects::Address>& old, const fs::path& dir,
                     const objects::Address& to, const std::string& token,
                     std::string& state) {
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
    if (comes_last(one.key)) store.remove(one);
  }
  Versions sent;
  std::mutex sending;
  const auto put = [&](const fs::path& file) {
    const objects::Address place = place_of(file, dir, to);
    store.put(file, place);
    const auto made = store.look(place);
    const std::lock_guard lock(sending);
    sent[place.key] = made ? made->version : "";
  };
  const auto final = std::prev(files.end());
  const auto first_last = std::min(std::ranges::find_if(files, comes_last), final);
  system::share_among_threads(std::distance(files.begin(), first_last), kFilesAtOnce,
                              [&](int64_t i) { put(files[static_cast<size_t>(i)]); });
  for (const objects::Address& one : old) {
    if (!comes_last(one.key) && !keys.contains(one.key)) store.remove(one);
  }
  refuse_mixture(store, to, token, sent, state);
  std::for_each(first_last, final, put);
  // A whole directory holds no claim. Another upload that finds it gone puts one there.
  refuse_mixture(store, to, token, sent, state);
  store.remove(to / kClaim);
  put(*final);
  state = to.text() + " has all new files";
  refuse_mixture(store, to, "", sent, state);
  fmt::print(stderr, "uploaded {}, {}, to {} in {:.1f} s\n",
             counted(std::ssize(files), "file"), human_bytes(bytes), to.text(),
             watch.seconds());
}

}  // namespace

OutputPlace::OutputPlace(const std::string& named, const objects::Access& objects,
                         const OutputUse& use)
    : objects_(objects), path_(named) {
  if (!objects::is_address(named)) return;
  const objects::Address address = objects::parse_address(named);
  if (address.key.empty()) {
    throw InputError("objects", named +
                                    ": names a whole bucket; add a key to write "
                                    "below, as s3://BUCKET/KEY");
  }
  if (address.key.find_first_of("*?[") != std::string::npos) {
    throw InputError("objects", named +
                                    ": has a character of patterns (* ? [), so nothing "
                                    "could read what is written there; name an address "
                                    "without it");
  }
  if (use.processes > 1) {
    throw InputError(
        "objects",
        fmt::format("{}: {} processes share this work, and only one may write to an "
                    "address; start one, or give a path that all of them see",
                    named, use.processes));
  }
  const fs::path parent =
      objects::default_cache().parent_path() / "uploads" / uploads_name(address);
  const fs::path whole = parent / fs::path(address.key).filename();
  path_ = whole.string();
  named_.note(whole, address);
  begun_ = parent.string() + ".begun";
  places_.push_back({path_, address});
  if (!use.beside.empty()) {
    places_.push_back({path_ + use.beside, {address.bucket, address.key + use.beside}});
  }
  replaces_ = use.replaces;
  take_locks(parent.parent_path());
  std::ifstream keys(begun_);
  for (std::string key; std::getline(keys, key);) {
    if (ours_.empty()) last_ = key;
    ours_.insert(key);
  }
  for (const Place& place : places_) {
    refuse_object(*objects_.store(), place.address);
    const std::vector<objects::Address> there =
        objects_below(*objects_.store(), place.address);
    if (const auto kept = object_to_keep(there, place.address)) {
      refuse_to_replace(*kept, place.address);
    }
  }
  if (!use.goes_on) {
    for (const Place& place : places_) fs::remove_all(place.dir);
  }
  fs::create_directories(parent);
}

void OutputPlace::take_locks(const fs::path& uploads) {
  fs::create_directories(uploads);
  // Who looks at the locks of others has this one, so that none is in the way of another.
  objects::FileLock looking(uploads / "all.lock");
  while (!looking.take(LOCK_EX)) std::this_thread::sleep_for(kLockWait);
  for (const Place& place : places_) {
    const fs::path file = uploads / (uploads_name(place.address) + ".lock");
    locks_.emplace_back(file);
    if (!locks_.back().take(LOCK_EX)) {
      throw InputError("objects", place.address.text() +
                                      ": another command of this machine is writing "
                                      "there; wait until that command ends, or end it, "
                                      "and start this one again");
    }
    write_text_durable(file, place.address.text() + "\n");
  }
  for (const auto& entry : fs::directory_iterator(uploads)) {
    if (entry.path().extension() != ".lock") continue;
    const std::string text = first_line(entry.path());
    if (!objects::is_address(text)) continue;
    const objects::Address other = objects::parse_address(text);
    for (const Place& place : places_) {
      if (!overlap(place.address, other)) continue;
      objects::FileLock lock(entry.path());
      if (lock.take(LOCK_SH)) continue;
      fail_input("objects",
                 "{}: another command of this machine is writing to {}, and one of the "
                 "two addresses lies below the other; wait until that command ends, or "
                 "name an address beside it",
                 place.address.text(), other.text());
    }
  }
}

void OutputPlace::refuse_to_replace(const objects::Address& kept,
                                    const objects::Address& address) const {
  if (was_sent()) {
    forget_directories();
    fail_input("objects",
               "{}: an earlier call of this command has uploaded all of it, and was "
               "ended before it could say so; what lies there is whole",
               places_.front().address.text());
  }
  if (!replaces_.empty() && is_deeper(kept, address) && comes_last(kept.key)) {
    fail_input("objects",
               "{}: {} makes another directory whole, and is not replaced; name another "
               "address, or delete it first",
               address.text(), kept.text());
  }
  if (!objects::is_path(kept.key)) {
    fail_input(
        "objects",
        "{}: the key of {} has a part that is empty, \".\" or \"..\", so it is not "
        "replaced; name another address, or delete that object first",
        address.text(), kept.text());
  }
  fail_input(
      "objects",
      "{}: objects lie there already{}; name another address, or delete them first",
      address.text(),
      replaces_.empty() ? ""
                        : fmt::format(" without a {}, and are not replaced", replaces_));
}

bool OutputPlace::was_sent() const {
  if (ours_.empty()) return false;
  bool last_is_there = false;
  for (const Place& place : places_) {
    std::map<std::string, uint64_t> sizes;
    for (const auto& object : objects_.store()->list(place.address, /*versions=*/false)) {
      sizes[object.address.key] = object.size;
    }
    last_is_there = last_is_there || sizes.contains(last_);
    if (!fs::exists(place.dir)) continue;  // the upload was about to end
    for (const fs::path& file : files_below(place.dir)) {
      const auto found = sizes.find(place_of(file, place.dir, place.address).key);
      if (found == sizes.end() || found->second != fs::file_size(file)) return false;
    }
  }
  return last_is_there;
}

void OutputPlace::forget_directories() const {
  for (const Place& place : places_) fs::remove_all(place.dir);
  fs::remove(begun_);
  std::error_code not_empty;
  fs::remove(fs::path(path_).parent_path(), not_empty);
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
  const bool replaces = !goes_on && std::ranges::any_of(there, replaced);
  const auto kept = std::ranges::find_if(there, [&](const objects::Address& one) {
    if (!replaces) return !replaced(one);
    // What makes a directory below the address whole is no file of what is replaced. And
    // no client can delete an object whose key is no path.
    return !objects::is_path(one.key) || (is_deeper(one, address) && comes_last(one.key));
  });
  return kept == there.end() ? std::nullopt : std::optional(*kept);
}

std::vector<objects::Address> OutputPlace::objects_to_replace(
    const objects::Address& address) const {
  refuse_object(*objects_.store(), address);
  std::vector<objects::Address> there = objects_below(*objects_.store(), address);
  if (const auto kept = object_to_keep(there, address)) {
    fail_input("objects",
               "{}: lies where {} is to be written, and is not replaced; delete it "
               "and start again",
               kept->text(), address.text());
  }
  return there;
}

std::string OutputPlace::as_named(std::string text) const {
  return objects_.with_addresses(named_.with_addresses(std::move(text)));
}

void OutputPlace::upload() const {
  if (places_.empty()) return;
  std::vector<std::vector<objects::Address>> old;
  std::string state = "nothing was changed at " + places_.front().address.text();
  const std::string token = new_token();
  try {
    for (const Place& place : places_) objects_to_replace(place.address);
    state += ", but an object " + std::string(kClaim) + " may lie there";
    for (const Place& place : places_) claim(*objects_.store(), place.address, token);
    std::string keys;
    const Place& last = places_.back();
    keys += place_of(files_below(last.dir).back(), last.dir, last.address).key + "\n";
    for (const auto& [dir, to] : places_) {
      // Another upload may have made objects before it could see the claim.
      old.push_back(objects_to_replace(to));
      for (const fs::path& file : files_below(dir)) {
        keys += place_of(file, dir, to).key + "\n";
      }
      for (const objects::Address& one : old.back()) keys += one.key + "\n";
    }
    write_text_durable(begun_, keys);
    for (size_t i = 0; i < places_.size(); ++i) {
      replace_objects(*objects_.store(), old[i], places_[i].dir, places_[i].address,
                      token, state);
    }
  } catch (...) {
    say_warning(fmt::format(
        "{}. What was made stays in {} until the same command makes it anew, or goes on "
        "with it",
        state, path_));
    throw;
  }
  forget_directories();
}

}  // namespace longhaul::apps
