#include "longhaul/objects/output_place.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/objects/local_copy.h"
#include "longhaul/system/run_on_threads.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::objects {
namespace {

using Names = std::vector<std::string>;

/// The name of an object whose text says which upload to this address is under way. An
/// upload makes it first, to show that it may make objects.
constexpr std::string_view kClaim = ".longhaul-upload";
constexpr int kUploadsAtOnce = 4;
constexpr auto kUploadLockWait = std::chrono::milliseconds(10);

/// Returns the files below a directory; those of the names `last` come after all others.
std::vector<fs::path> files_below(const fs::path& dir, const Names& last) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  const auto rank = [&](const fs::path& file) {
    const auto found = std::ranges::find(last, file.filename().string());
    return found == last.end() ? 0 : 1 + std::distance(last.begin(), found);
  };
  std::ranges::sort(files, [&](const fs::path& a, const fs::path& b) {
    return std::pair(rank(a), a) < std::pair(rank(b), b);
  });
  return files;
}

bool is_among(const Names& last, const fs::path& file) {
  return std::ranges::find(last, file.filename().string()) != last.end();
}

/// Returns all objects below an address except kClaim.
std::vector<Address> objects_below(const OutputRequests& store, const Address& address) {
  std::vector<Address> found;
  for (auto& object : store.list(address, /*versions=*/false)) {
    if (object.address == address / kClaim) continue;
    found.push_back(std::move(object.address));
  }
  return found;
}

/// Returns whether an object lies in a directory below an address.
bool is_deeper(const Address& object, const Address& address) {
  return object.key.find('/', address.key.size() + 1) != std::string::npos;
}

/// Returns whether one address lies below the other.
bool overlap(const Address& one, const Address& other) {
  return one.bucket == other.bucket &&
         (one.key.starts_with(other.key + "/") || other.key.starts_with(one.key + "/"));
}

/// Throws InputError if an object has the very name of an address to write to: readers of
/// that address would get the object.
void refuse_object(const OutputRequests& store, const Address& address) {
  if (!store.look(address)) return;
  fail_input("objects",
             "{}: an object of this name is there, which readers would get in place of "
             "what is written; name another address, or delete it first",
             address.text());
}

/// Returns where a file of a directory goes that is copied to an address.
Address place_of(const fs::path& file, const fs::path& dir, const Address& to) {
  return to / file.lexically_relative(dir).generic_string();
}

/// Returns the name of what belongs to an address among the uploads of this machine.
std::string uploads_name(const Address& address) {
  return hash_hex(address.text()).substr(0, 16);
}

std::string new_token() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}\n", source(), source(), source(),
                     source());
}

/// Claims an address for an upload, and shows that objects can be made and deleted there.
/// A store has no locks, so this replaces the claim of another upload, which may have
/// died.
void claim(const OutputRequests& store, const Address& address,
           const std::string& token) {
  store.put_text(token, address / kClaim);
  store.remove(address / kClaim);
  store.put_text(token, address / kClaim);
}

using Versions = std::map<std::string, std::string>;  ///< of objects, by their keys

/// Returns an object below an address that shows another upload: one that is not in
/// `sent` with its version, one of `sent` that is absent, or the claim if its text is not
/// `token`. Returns nothing if there is no such object.
std::optional<Address> sign_of_another(const OutputRequests& store, const Address& to,
                                       const std::string& token, const Versions& sent) {
  Versions absent = sent;
  for (const ObjectInfo& one : store.list(to, /*versions=*/true)) {
    if (one.address == to / kClaim) continue;
    const auto found = absent.find(one.address.key);
    if (found == absent.end() || found->second != one.version) return one.address;
    absent.erase(found);
  }
  if (!absent.empty()) return Address{to.bucket, absent.begin()->first};
  if (store.read_text(to / kClaim).value_or("") != token) return to / kClaim;
  return std::nullopt;
}

/// An upload to addresses at which the caller has put its claim (kClaim).
class Upload {
 public:
  /// Keeps a text in `state` that says what is at the addresses. The arguments that are
  /// references must outlive the upload.
  Upload(const OutputRequests& store, const Names& last, std::string token,
         std::string& state)
      : store_(store), last_(last), token_(std::move(token)), state_(state) {}

  /// Copies the files of a directory to an address, where they replace the objects `old`.
  /// First deletes the old files whose names are in `last`, so that no reader takes a
  /// mixture of old and new files for complete. Returns a line for people.
  std::string replace_objects(const std::vector<Address>& old, const fs::path& dir,
                              const Address& to);

 private:
  /// Ends the upload if sign_of_another() finds an object. Then the address may hold
  /// files of two uploads. So deletes the files there whose names are in `last`, without
  /// which no reader takes the files for complete, and replaces the claim, so that the
  /// other upload ends too. Keeps such files in directories below the address that this
  /// upload has not sent.
  void refuse_mixture(const Address& to, const std::string& token);
  void put(const fs::path& file, const Address& place);
  bool comes_last(const fs::path& file) const { return is_among(last_, file); }

  const OutputRequests& store_;
  const Names& last_;
  std::string token_;
  std::string& state_;
  std::mutex sending_;
  Versions sent_;  ///< objects that replace_objects() has sent so far to its address
};

void Upload::refuse_mixture(const Address& to, const std::string& token) {
  const auto sign = sign_of_another(store_, to, token, sent_);
  if (!sign) return;
  state_ = to.text() + " may have files of two uploads";
  store_.put_text("two uploads\n", to / kClaim);
  for (const Address& one : objects_below(store_, to)) {
    const bool ours = !is_deeper(one, to) || sent_.contains(one.key);
    if (ours && comes_last(one.key)) store_.remove(one);
  }
  state_ += ", and counts as nothing";
  fail_input("objects",
             "{}: another command has been uploading to it meanwhile, as {} shows; "
             "delete what the two have left, and start one of the two again",
             to.text(), sign->text());
}

void Upload::put(const fs::path& file, const Address& place) {
  store_.put(file, place);
  const auto made = store_.look(place);
  const std::lock_guard lock(sending_);
  sent_[place.key] = made ? made->version : "";
}

std::string Upload::replace_objects(const std::vector<Address>& old, const fs::path& dir,
                                    const Address& to) {
  const std::vector<fs::path> files = files_below(dir, last_);
  const system::Stopwatch watch;
  uint64_t bytes = 0;
  std::set<std::string> keys;
  for (const fs::path& file : files) {
    bytes += fs::file_size(file);
    keys.insert(place_of(file, dir, to).key);
  }
  state_ = fmt::format("{} has not all new files, and counts as nothing yet{}", to.text(),
                       old.empty() ? "" : "; what was there before is lost");
  for (const Address& one : old) {
    if (comes_last(one.key)) store_.remove(one);
  }
  sent_.clear();
  const auto send = [&](const fs::path& file) { put(file, place_of(file, dir, to)); };
  const auto final = std::prev(files.end());
  const auto first_last = std::min(
      std::ranges::find_if(files, [&](const auto& file) { return comes_last(file); }),
      final);
  system::share_among_threads(std::distance(files.begin(), first_last), kUploadsAtOnce,
                              [&](int64_t i) { send(files[static_cast<size_t>(i)]); });
  for (const Address& one : old) {
    if (!comes_last(one.key) && !keys.contains(one.key)) store_.remove(one);
  }
  refuse_mixture(to, token_);
  std::for_each(first_last, final, send);
  // A complete directory has no claim, so the claim is deleted before the final file is
  // sent.
  refuse_mixture(to, token_);
  store_.remove(to / kClaim);
  send(*final);
  state_ = to.text() + " has all new files";
  refuse_mixture(to, "");
  return fmt::format("uploaded {}, {}, to {} in {:.1f} s",
                     counted(std::ssize(files), "file"), human_bytes(bytes), to.text(),
                     watch.seconds());
}

/// Returns the requests to a store.
OutputRequests requests_to(const std::shared_ptr<ObjectStore>& store) {
  return {
      [store](const Address& address) { return store->look(address); },
      [store](const Address& prefix, bool versions) {
        return store->list(prefix, versions);
      },
      [store](const fs::path& from, const Address& to) { store->put(from, to); },
      [store](const std::string& text, const Address& to) { store->put_text(text, to); },
      [store](const Address& address) { return store->read_text(address); },
      [store](const Address& address) { store->remove(address); }};
}

}  // namespace

OutputPlace::OutputPlace(const std::string& named, const Access& objects,
                         const OutputUse& use)
    : OutputPlace(named, requests_to(objects.store()), use) {
  copies_ = objects.paths();
}

OutputPlace::OutputPlace(const std::string& named, OutputRequests store,
                         const OutputUse& use)
    : store_(std::move(store)), use_(use), path_(named) {
  if (!objects::is_address(named)) return;
  const Address address = parse_address(named);
  if (address.key.empty()) {
    fail_input("objects",
               "{}: names a whole bucket; add a key to write below, as s3://BUCKET/KEY",
               named);
  }
  if (has_wildcard(address.key)) {
    fail_input("objects",
               "{}: has a character of patterns (* ? [), so nothing could read what is "
               "written there; name an address without it",
               named);
  }
  if (use.processes > 1) {
    fail_input("objects",
               "{}: {} processes share this work, and only one may write to an address; "
               "start one, or give a path that all of them see",
               named, use.processes);
  }
  const fs::path parent =
      default_cache().parent_path() / "uploads" / uploads_name(address);
  const fs::path whole = parent / fs::path(address.key).filename();
  path_ = whole.string();
  named_.note(whole, address);
  begun_ = parent.string() + ".begun";
  places_.push_back({path_, address});
  if (!use.beside.empty()) {
    places_.push_back({path_ + use.beside, {address.bucket, address.key + use.beside}});
  }
  take_locks(parent.parent_path());
  std::ifstream keys(begun_);
  for (std::string key; std::getline(keys, key);) {
    if (ours_.empty()) last_key_ = key;
    ours_.insert(key);
  }
  for (const Place& place : places_) {
    refuse_object(store_, place.address);
    const std::vector<Address> there = objects_below(store_, place.address);
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
  // A process takes this lock before it looks at the locks of others, so that two
  // processes that look at once do not refuse each other.
  FileLock looking(uploads / "all.lock");
  while (!looking.take(LOCK_EX)) std::this_thread::sleep_for(kUploadLockWait);
  for (const Place& place : places_) {
    const fs::path file = uploads / (uploads_name(place.address) + ".lock");
    locks_.emplace_back(file);
    if (!locks_.back().take(LOCK_EX)) {
      fail_input("objects",
                 "{}: another command of this machine is writing there; wait until that "
                 "command ends, or end it, and start this one again",
                 place.address.text());
    }
    write_text_durable(file, place.address.text() + "\n");
  }
  for (const auto& entry : fs::directory_iterator(uploads)) {
    if (entry.path().extension() != ".lock") continue;
    const std::string text = first_line(entry.path());
    if (!objects::is_address(text)) continue;
    const Address other = parse_address(text);
    for (const Place& place : places_) {
      if (!overlap(place.address, other)) continue;
      FileLock lock(entry.path());
      if (lock.take(LOCK_SH)) continue;
      fail_input("objects",
                 "{}: another command of this machine is writing to {}, and one of the "
                 "two addresses lies below the other; wait until that command ends, or "
                 "name an address beside it",
                 place.address.text(), other.text());
    }
  }
}

void OutputPlace::refuse_to_replace(const Address& kept, const Address& address) const {
  if (was_sent()) {
    forget_directories();
    fail_input("objects",
               "{}: an earlier call of this command has uploaded all of it, and was "
               "ended before it could say so; what lies there is whole",
               places_.front().address.text());
  }
  if (!use_.replaces.empty() && is_deeper(kept, address) &&
      is_among(use_.last, kept.key)) {
    fail_input("objects",
               "{}: {} makes another directory whole, and is not replaced; name another "
               "address, or delete it first",
               address.text(), kept.text());
  }
  if (!is_path(kept.key)) {
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
      use_.replaces.empty()
          ? ""
          : fmt::format(" without a {}, and are not replaced", use_.replaces));
}

bool OutputPlace::was_sent() const {
  if (ours_.empty()) return false;
  bool last_is_there = false;
  for (const Place& place : places_) {
    std::map<std::string, uint64_t> sizes;
    for (const auto& object : store_.list(place.address, /*versions=*/false)) {
      sizes[object.address.key] = object.size;
    }
    last_is_there = last_is_there || sizes.contains(last_key_);
    if (!fs::exists(place.dir)) continue;  // the upload was about to end
    for (const fs::path& file : files_below(place.dir, use_.last)) {
      const auto found = sizes.find(place_of(file, place.dir, place.address).key);
      if (found == sizes.end() || found->second != fs::file_size(file)) return false;
    }
  }
  return last_is_there;
}

void OutputPlace::forget_directories() const {
  for (const Place& place : places_) fs::remove_all(place.dir);
  fs::remove(begun_);
  try_remove(fs::path(path_).parent_path());
}

std::optional<Address> OutputPlace::object_to_keep(const std::vector<Address>& there,
                                                   const Address& address) const {
  // If the object that is made last is there, the ended upload was complete, so this call
  // does not go on with it. Another process may have made that object.
  const auto is_last = [&](const Address& one) { return one.key == last_key_; };
  const bool goes_on = !ours_.empty() && std::ranges::none_of(there, is_last);
  const auto replaced = [&](const Address& one) {
    if (goes_on) return ours_.contains(one.key);
    return !use_.replaces.empty() && one == address / use_.replaces;
  };
  const bool replaces = !goes_on && std::ranges::any_of(there, replaced);
  const auto kept = std::ranges::find_if(there, [&](const Address& one) {
    if (!replaces) return !replaced(one);
    // Some objects stay even if the upload replaces others. No client can delete an
    // object whose key is no path. And a file of OutputUse::last in a directory below the
    // address shows that the directory is a complete output of its own.
    return !is_path(one.key) || (is_deeper(one, address) && is_among(use_.last, one.key));
  });
  return kept == there.end() ? std::nullopt : std::optional(*kept);
}

std::vector<Address> OutputPlace::objects_to_replace(const Address& address) const {
  refuse_object(store_, address);
  std::vector<Address> there = objects_below(store_, address);
  if (const auto kept = object_to_keep(there, address)) {
    fail_input("objects",
               "{}: lies where {} is to be written, and is not replaced; delete it "
               "and start again",
               kept->text(), address.text());
  }
  return there;
}

std::string OutputPlace::as_named(std::string text) const {
  text = named_.with_addresses(std::move(text));
  return copies_ ? copies_->with_addresses(std::move(text)) : text;
}

void OutputPlace::upload() const {
  if (places_.empty()) return;
  std::vector<std::vector<Address>> old;
  std::string state = "nothing was changed at " + places_.front().address.text();
  const std::string token = new_token();
  try {
    for (const Place& place : places_) objects_to_replace(place.address);
    state += ", but an object " + std::string(kClaim) + " may lie there";
    for (const Place& place : places_) claim(store_, place.address, token);
    std::string keys;
    const Place& last = places_.back();
    keys +=
        place_of(files_below(last.dir, use_.last).back(), last.dir, last.address).key +
        "\n";
    for (const auto& [dir, to] : places_) {
      // Another upload may have made objects before it could see the claim.
      old.push_back(objects_to_replace(to));
      for (const fs::path& file : files_below(dir, use_.last)) {
        keys += place_of(file, dir, to).key + "\n";
      }
      for (const Address& one : old.back()) keys += one.key + "\n";
    }
    write_text_durable(begun_, keys);
    Upload upload(store_, use_.last, token, state);
    for (size_t i = 0; i < places_.size(); ++i) {
      const std::string line =
          upload.replace_objects(old[i], places_[i].dir, places_[i].address);
      if (use_.tell) use_.tell(line);
    }
  } catch (...) {
    if (use_.warn) {
      use_.warn(fmt::format(
          "{}. What was made stays in {} until the same command makes it anew, or goes "
          "on with it",
          state, path_));
    }
    throw;
  }
  forget_directories();
}

}  // namespace longhaul::objects
