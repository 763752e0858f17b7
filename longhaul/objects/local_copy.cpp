#include "longhaul/objects/local_copy.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/base/refused.h"
#include "longhaul/base/text.h"
#include "longhaul/objects/copy_content.h"
#include "longhaul/objects/etag.h"
#include "longhaul/objects/file_lock.h"
#include "longhaul/objects/recorded_hashes.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::objects {
namespace {

// DIR/ID/NAME      the copy of an object NAME, or of all objects below a prefix NAME
// DIR/ID/copy.json the files' sizes and hashes; without it there is no copy
// DIR/ID/proved    the boot of the machine that has compared the files with their hashes
// DIR/ID.lock      locked alone by a process that fetches or deletes, shared by users
// DIR/ID.part      a copy that is being fetched; `planned` in it says how large it gets,
//                  which counts while ID.lock is locked
// DIR/room.lock    locked by a process that looks for room and takes it
constexpr const char* kRecord = "copy.json";
constexpr const char* kProved = "proved";
constexpr const char* kByEtag = "by_etag";  ///< whether fetch() has compared the ETags
constexpr const char* kPlanned = "planned";
constexpr const char* kRoom = "room";
constexpr int kFilesAtOnce = 4;
/// How often an object is fetched at most while it comes with another wrong hash each
/// time.
constexpr int kMostFetches = 4;
constexpr auto kLockWait = std::chrono::milliseconds(100);
constexpr auto kTellEvery = std::chrono::seconds(10);
/// Copies without a limit leave one part in kFreeShare of the disk free, but no more than
/// kMostFree bytes, since checkpoints may lie on the same disk. Copies for which a run
/// under way waits may fill this part too.
constexpr uint64_t kFreeShare = 20;
constexpr uint64_t kMostFree = 20'000'000'000;
/// How long to wait for other processes to let go of copies whose room is needed.
constexpr auto kRoomWait = std::chrono::seconds(60);

std::string boot_of_machine() { return first_line("/proc/sys/kernel/random/boot_id"); }

/// A copy that may be deleted when its lock can be taken.
struct Unused {
  fs::file_time_type last_use;
  std::string id;
  uint64_t bytes = 0;
};

/// The disk space that the copies of all processes take.
struct Taken {
  std::vector<Unused> copies;  ///< the longest unused first
  uint64_t bytes = 0;          ///< of all copies, also while they are fetched
  uint64_t coming = 0;         ///< what is still to be fetched of these bytes
};

/// Returns how many bytes of a directory's files are on the disk. Other processes may be
/// writing the files at the same time.
uint64_t bytes_on_disk(const fs::path& dir) {
  uint64_t bytes = 0;
  std::error_code gone;
  for (fs::recursive_directory_iterator next(dir, gone), end; !gone && next != end;
       next.increment(gone)) {
    struct stat status{};
    if (::lstat(next->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    bytes += static_cast<uint64_t>(std::min(status.st_blocks * 512, status.st_size));
  }
  return bytes;
}

}  // namespace

struct LocalCopies::State {
  /// The lock of a copy that this process uses.
  struct Held {
    FileLock lock;
    uint64_t bytes = 0;
    int users = 0;
  };
  CopyRequests requests;
  fs::path dir;
  uint64_t most_bytes = 0;
  std::function<void(const std::string&)> tell;
  std::shared_ptr<CopyPaths> paths;  ///< may be null
  std::atomic<bool> prove_anew = false;
  RecordedHashes recorded;
  std::mutex mutex;  ///< guards what follows; nobody fetches under it
  std::map<std::string, Held> held;
  std::map<std::string, fs::path> got;  ///< by address
  uint64_t reserved = 0;

  void say(const std::string& line) const {
    if (tell) tell(line);
  }
  /// Waits a moment for other processes.
  void wait() const {
    if (requests.go_on) requests.go_on();
    std::this_thread::sleep_for(kLockWait);
  }

  CopyContent look(const Address& address) const {
    if (!address.key.empty()) {
      if (const auto object = requests.look(address)) {
        return content_of(address, {*object}, true);
      }
    }
    CopyContent content = content_of(address, requests.list(address), false);
    if (!content.objects.empty()) return content;
    fail_input("objects",
               "{}: there is neither such an object nor one below it{}; correct the "
               "address",
               address.text(),
               content.passed_over.empty()
                   ? ""
                   : fmt::format(" whose key is a path, as that of {} is not",
                                 content.passed_over.front().text()));
  }

  /// Tells of the objects that a copy will lack.
  void tell_of_passed_over(const CopyContent& content) const {
    if (content.passed_over.empty()) return;
    say(
        fmt::format("passed over {} with a part of the key that is empty, \".\" or "
                    "\"..\", such as {}",
                    counted(std::ssize(content.passed_over), "object"),
                    content.passed_over.front().text()));
  }

  /// Returns the path of a copy that is there.
  fs::path path_of(const CopyContent& content, const Address& address) const {
    fs::path path = copy_dir(content.id) / content.name;
    if (paths) paths->note(path, address);
    return path;
  }
  fs::path part_dir(const std::string& id) const { return dir / (id + ".part"); }
  fs::path copy_dir(const std::string& id) const { return dir / id; }
  fs::path lock_file(const std::string& id) const { return dir / (id + ".lock"); }

  /// Learns the hashes that this program's own records in a copy list.
  void learn(const CopyContent& content, const Address& address, const fs::path& copy) {
    for (const ObjectInfo& object : content.objects) {
      recorded.learn(copy / content.file(object, address), object.address);
    }
  }

  /// Throws if a file's size or hash is not the one in copy.json, or if its hash is not
  /// the one in the object's record (RecordedHashes). A hash is not computed again if it
  /// was computed after the file was written and since the machine booted. In copies of
  /// earlier versions of this program, copy.json does not say that the ETags were
  /// compared. Then the files that are hashed are compared with their ETags too.
  void prove(const CopyContent& content, const Address& address) {
    const fs::path copy = copy_dir(content.id);
    learn(content, address, copy);
    const Json record = read_json(copy / kRecord);
    const bool proved = !prove_anew && first_line(copy / kProved) == boot_of_machine();
    const auto proved_at =
        proved ? fs::last_write_time(copy / kProved) : fs::file_time_type::min();
    const Json& files = record.at("files");
    const bool by_etag = record.value(kByEtag, false);
    system::share_among_threads(
        static_cast<int64_t>(files.size()), kFilesAtOnce, [&](int64_t index) {
          const Json& file = files.at(static_cast<size_t>(index));
          const fs::path path =
              join_inside(copy, file.at("name").get<std::string>(), "objects");
          if (fs::file_size(path) != file.at("size").get<uint64_t>()) {
            fail_input("objects", "{}: has another size", path.string());
          }
          const ObjectInfo& object = content.objects.at(static_cast<size_t>(index));
          if (const auto known = recorded.of(object.address);
              known && known->hash != file.at("hash").get<std::string>()) {
            fail_input("objects", "{}: came with another hash than {} says",
                       path.string(), known->record);
          }
          if (fs::last_write_time(path) <= proved_at) return;
          const MappedFile mapped(path);
          BlockHasher hasher;
          hasher.update(mapped.bytes());
          if (combine_hashes(hasher.finish()) != file.at("hash").get<std::string>()) {
            fail_input("objects", "{}: has another hash", path.string());
          }
          if (by_etag) return;
          EtagProof proof(object.version, object.size);
          proof.update(mapped.bytes());
          if (proof.fits()) return;
          fail_input("objects", "{}: does not fit its ETag {}", path.string(),
                     object.version);
        });
    write_text_atomic(copy / kProved, boot_of_machine() + "\n");
  }

  /// Returns whether a copy is there, complete and undamaged. Deletes a copy that is not.
  bool is_good(const CopyContent& content, const Address& address) {
    const std::string& id = content.id;
    if (!is_seen(copy_dir(id) / kRecord)) {
      try_remove_all(copy_dir(id));
      return false;
    }
    const auto broken = Failure::of([&] { prove(content, address); });
    if (!broken) return true;
    say(fmt::format("the copy of {} is damaged and is fetched again: {}", address.text(),
                    broken->message));
    try_remove_all(copy_dir(id));
    return false;
  }

  /// Proves a copy that other processes use as well. Such a copy cannot be fetched again,
  /// so damage is an error.
  void prove_beside_others(const CopyContent& content, const Address& address) {
    const auto broken = Failure::of([&] { prove(content, address); });
    if (!broken) return;
    fail_input("objects",
               "{}: its copy on this machine is damaged, and another process uses it: "
               "{}. End that process, and start this command again",
               address.text(), broken->message);
  }

  /// Looks at all copies. Deletes what a killed fetch has left.
  Taken taken() const {
    Taken all;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
      if (entry.path().extension() != ".lock") continue;
      const std::string id = entry.path().stem().string();
      if (const fs::path part = part_dir(id); is_seen(part / kPlanned)) {
        FileLock lock(entry.path());
        if (lock.take(LOCK_EX)) {
          fs::remove_all(part);
        } else {
          // The process that fetches may rename `part` to the copy at this moment. Then
          // the file kPlanned is not found, and the copy is counted below.
          const uint64_t come = bytes_on_disk(part / kCopyContent);
          const uint64_t planned =
              std::strtoull(first_line(part / kPlanned).c_str(), nullptr, 10);
          all.bytes += planned;
          all.coming += planned - std::min(planned, come);
        }
      }
      const fs::path record = copy_dir(id) / kRecord;
      if (!is_seen(record)) {
        if (id != kRoom) remove_leftovers(entry.path(), id);
        continue;
      }
      all.copies.push_back(
          {entry.last_write_time(), id, read_json(record).value("bytes", uint64_t{0})});
      all.bytes += all.copies.back().bytes;
    }
    std::ranges::sort(all.copies, {}, &Unused::last_use);
    return all;
  }

  /// Removes the lock file of a copy that is not there any more, and what killed
  /// processes have left of the copy.
  void remove_leftovers(const fs::path& file, const std::string& id) const {
    FileLock lock(file);
    if (!lock.take(LOCK_EX)) return;
    std::error_code problem;
    // Another process may have completed the copy before this one took the lock.
    if (fs::exists(copy_dir(id) / kRecord, problem)) return;
    fs::remove_all(copy_dir(id), problem);
    if (!problem) fs::remove_all(part_dir(id), problem);
    if (!problem) lock.remove();
  }

  fs::space_info space() const {
    return requests.space ? requests.space() : fs::space(dir);
  }
  /// Returns the bytes of a disk that copies leave free.
  uint64_t left_free(const fs::space_info& disk, bool waits) const {
    if (waits || most_bytes > 0) return 0;
    return std::min<uint64_t>(disk.capacity / kFreeShare, kMostFree);
  }

  /// Deletes copies that nobody uses, the longest unused first, until `bytes` more fit
  /// beside what other processes fetch. If they would not fit even without the unused
  /// copies, deletes none and returns false.
  bool make_room(uint64_t bytes, bool waits) const {
    Taken all = taken();
    uint64_t total = all.bytes + bytes;
    const fs::space_info disk = space();
    uint64_t free = disk.available;
    const auto fits = [&] {
      return all.coming + bytes + left_free(disk, waits) <= free &&
             (most_bytes == 0 || total <= most_bytes);
    };
    std::vector<std::pair<Unused, FileLock>> leaving;
    for (Unused& copy : all.copies) {
      if (fits()) break;
      FileLock lock(lock_file(copy.id));
      if (!lock.take(LOCK_EX)) continue;
      total -= copy.bytes;
      free += copy.bytes;
      leaving.emplace_back(std::move(copy), std::move(lock));
    }
    if (!fits()) return false;
    for (auto& [copy, lock] : leaving) {
      fs::remove_all(copy_dir(copy.id));
      lock.remove();
      say(fmt::format("deleted a copy of {} that was unused the longest, to make room",
                      human_bytes(copy.bytes)));
    }
    return true;
  }

  /// Makes room for a copy, and makes its directory, by which other processes count the
  /// copy. The caller has the copy's lock.
  void take_room(const CopyContent& content, const Address& address, bool waits) const {
    const fs::path part = part_dir(content.id);
    fs::remove_all(part);
    const auto limit = std::chrono::steady_clock::now() + kRoomWait;
    const bool never = most_bytes > 0 && content.bytes > most_bytes;
    while (!never) {
      {
        FileLock room(lock_file(kRoom));
        while (!room.take(LOCK_EX)) wait();
        if (make_room(content.bytes, waits)) {
          fs::create_directories(part);
          write_text_atomic(part / kPlanned, std::to_string(content.bytes) + "\n");
          return;
        }
      }
      if (!waits || std::chrono::steady_clock::now() > limit) break;
      wait();
    }
    const fs::space_info disk = space();
    const uint64_t left = left_free(disk, waits);
    fail_input("objects",
               "{}: a copy takes {}, for which {} has no room: {}{} are free on the "
               "disk, less what other fetches will take, and what is in use stays{}. "
               "Make room, raise data.cache_gb or name a larger disk: with data.cache in "
               "a run, with XDG_CACHE_HOME for all else",
               address.text(), human_bytes(content.bytes), dir.string(),
               most_bytes == 0
                   ? ""
                   : fmt::format("data.cache_gb allows {}, ", human_bytes(most_bytes)),
               human_bytes(disk.available),
               left == 0 ? ""
                         : fmt::format(". Without data.cache_gb {} of the disk are left "
                                       "free for others",
                                       human_bytes(left)));
  }

  /// Returns the hash of an object's file, which must be the recorded one
  /// (RecordedHashes). Fetches the object again if it came with another hash. If the same
  /// wrong hash comes twice, the object is damaged in the store. That is an InputError if
  /// the record lies directly below the address. Else it is only told, since a record
  /// deeper below may be that of one step of a run, and a reader may want another step.
  std::string prove_recorded(const ObjectInfo& object, const Address& address,
                             const fs::path& file, std::string came) const {
    const auto known = recorded.of(object.address);
    if (!known) return came;
    for (int fetches = 1; came != known->hash; ++fetches) {
      fs::remove(file);
      const std::string before = std::exchange(came, requests.fetch(object, file));
      if (came == known->hash) break;
      if (came != before && fetches < kMostFetches) continue;
      if (came != before) {
        fail_temporary("objects",
                       "{}: its bytes have come {} times, each time with a hash that is "
                       "not the one of {}; start again later",
                       object.address.text(), fetches + 1, known->record);
      }
      const std::string damage = fmt::format(
          "{}: its bytes have come {} times, now with hash {}, and {} says {}: the "
          "object in the store is damaged. Put it there again",
          object.address.text(), fetches + 1, came, known->record, known->hash);
      if (known->dir == address) throw InputError("objects", damage);
      say(damage);
      break;
    }
    return known->hash;
  }

  void fetch(const CopyContent& content, const Address& address, bool waits) {
    take_room(content, address, waits);
    const fs::path part = part_dir(content.id);
    Json files = Json::array();
    for (const ObjectInfo& object : content.objects) {
      const fs::path name = content.file(object, address);
      fs::create_directories((part / name).parent_path());
      files.push_back({{"name", name.string()}, {"size", object.size}});
    }
    say(fmt::format("fetching {} ({} in {} object{}) to {}", address.text(),
                    human_bytes(content.bytes), content.objects.size(),
                    content.objects.size() == 1 ? "" : "s", dir.string()));
    std::atomic<uint64_t> done = 0;
    std::mutex telling;
    auto told = std::chrono::steady_clock::now();
    system::share_among_threads(
        static_cast<int64_t>(content.objects.size()), kFilesAtOnce, [&](int64_t number) {
          const auto index = static_cast<size_t>(number);
          const ObjectInfo& object = content.objects[index];
          const std::string hash =
              requests.fetch(object, part / content.file(object, address));
          done += object.size;
          const std::lock_guard lock(telling);
          files[index]["hash"] = hash;
          const auto now = std::chrono::steady_clock::now();
          if (now - told < kTellEvery) return;
          told = now;
          say(fmt::format("fetched {} of {} of {}", human_bytes(done.load()),
                          human_bytes(content.bytes), address.text()));
        });
    learn(content, address, part);
    for (size_t i = 0; i < content.objects.size(); ++i) {
      const ObjectInfo& object = content.objects[i];
      Json& hash = files[i]["hash"];
      hash = prove_recorded(object, address, part / content.file(object, address),
                            hash.get<std::string>());
    }
    const Json record = {{"address", address.text()},
                         {"bytes", content.bytes},
                         {"files", files},
                         {kByEtag, true}};
    write_text_durable(part / kRecord, json_text(record, 1) + "\n");
    write_text_durable(part / kProved, boot_of_machine() + "\n");
    sync_directory(part);
    fs::rename(part, copy_dir(content.id));
    sync_directory(dir);
    say(fmt::format("fetched {} of {}", human_bytes(content.bytes), address.text()));
  }

  /// Fetches a copy if it is not there, and counts one more user of it.
  void take(const CopyContent& content, const Address& address, bool waits) {
    {
      const std::lock_guard guard(mutex);
      if (const auto found = held.find(content.id); found != held.end()) {
        ++found->second.users;
        return;
      }
    }
    make_setting_directory("data.cache (else XDG_CACHE_HOME)", dir);
    FileLock lock(lock_file(content.id));
    auto told = std::chrono::steady_clock::now();
    bool shared = false;
    while (!lock.take(LOCK_EX)) {
      // Processes that use a copy share its lock. If the lock can be shared, another
      // process has proved the copy.
      if (lock.take(LOCK_SH)) {
        shared = is_seen(copy_dir(content.id) / kRecord);
        if (shared) break;
        lock.release();
      }
      wait();
      const auto now = std::chrono::steady_clock::now();
      if (now - told < kTellEvery) continue;
      told = now;
      say(fmt::format("waiting for another process that fetches {}", address.text()));
    }
    if (shared && prove_anew) prove_beside_others(content, address);
    if (shared && !prove_anew) learn(content, address, copy_dir(content.id));
    if (!shared && !is_good(content, address)) fetch(content, address, waits);
    lock.touch();
    while (!lock.take(LOCK_SH)) std::this_thread::sleep_for(kLockWait);
    // While a lock changes from exclusive to shared, the system may give it to another
    // process.
    if (!is_seen(copy_dir(content.id) / kRecord)) {
      lock.release();
      return take(content, address, waits);
    }
    const std::lock_guard guard(mutex);
    // Another thread may have taken the copy first. Then the lock of that thread stays,
    // and this lock is released.
    const auto [place, first] =
        held.try_emplace(content.id, Held{std::move(lock), content.bytes, 0});
    ++place->second.users;
  }

  void let_go(const std::string& id) {
    const std::lock_guard guard(mutex);
    const auto found = held.find(id);
    if (--found->second.users == 0) held.erase(found);
  }
};

LocalCopies::LocalCopies(const std::shared_ptr<ObjectStore>& store, fs::path dir,
                         uint64_t most_bytes,
                         std::function<void(const std::string&)> tell,
                         std::shared_ptr<CopyPaths> paths)
    : LocalCopies(
          CopyRequests{[store](const Address& address) { return store->look(address); },
                       [store](const Address& address) {
                         return store->list(address, /*versions=*/true);
                       },
                       [store](const ObjectInfo& object, const fs::path& to) {
                         return store->fetch(object, to);
                       },
                       [store] { store->require_going(); }},
          std::move(dir), most_bytes, std::move(tell), std::move(paths)) {}

LocalCopies::LocalCopies(CopyRequests requests, fs::path dir, uint64_t most_bytes,
                         std::function<void(const std::string&)> tell,
                         std::shared_ptr<CopyPaths> paths)
    : state_(std::make_shared<State>()) {
  state_->requests = std::move(requests);
  state_->dir = std::move(dir);
  state_->most_bytes = most_bytes;
  state_->tell = std::move(tell);
  state_->paths = std::move(paths);
}
LocalCopies::~LocalCopies() = default;

void LocalCopies::prove_anew() { state_->prove_anew = true; }

fs::path LocalCopies::get(const Address& address) {
  {
    const std::lock_guard guard(state_->mutex);
    if (const auto known = state_->got.find(address.text()); known != state_->got.end()) {
      return known->second;
    }
  }
  const CopyContent content = state_->look(address);
  state_->tell_of_passed_over(content);
  state_->take(content, address, /*waits=*/false);
  const fs::path path = state_->path_of(content, address);
  const std::lock_guard guard(state_->mutex);
  return state_->got.emplace(address.text(), path).first->second;
}

std::shared_ptr<const fs::path> LocalCopies::hold(const Address& prefix,
                                                  std::vector<ObjectInfo> objects,
                                                  bool waits) {
  const CopyContent content = content_of(prefix, std::move(objects), false);
  state_->tell_of_passed_over(content);
  state_->take(content, prefix, waits);
  return {new fs::path(state_->path_of(content, prefix)),
          [state = state_, id = content.id](const fs::path* path) {
            delete path;
            state->let_go(id);
          }};
}

std::shared_ptr<const void> LocalCopies::reserve(const Address& prefix, uint64_t bytes) {
  const std::lock_guard guard(state_->mutex);
  uint64_t others = state_->reserved;
  for (const auto& [id, held] : state_->held) others += held.bytes;
  if (const uint64_t most = state_->most_bytes; most > 0 && others + bytes > most) {
    fail_input("objects",
               "{}: to read it in order takes {} of copies at a time, and what else the "
               "run reads takes {}; data.cache_gb allows {}. Raise it",
               prefix.text(), human_bytes(bytes), human_bytes(others), human_bytes(most));
  }
  state_->reserved += bytes;
  return {nullptr, [state = state_, bytes](const void*) {
            const std::lock_guard again(state->mutex);
            state->reserved -= bytes;
          }};
}

}  // namespace longhaul::objects
