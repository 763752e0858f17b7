#include "longhaul/objects/local_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/base/json_fields.h"
#include "longhaul/base/refused.h"
#include "longhaul/base/text.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::objects {
namespace {

// DIR/ID/NAME      the copy of an object NAME, or of a prefix NAME with what lies below
// DIR/ID/copy.json the files' sizes and hashes; without it there is no copy
// DIR/ID/proved    which boot of the machine has compared the files with their hashes
// DIR/ID.lock      exclusively locked by who fetches or deletes, shared by who uses
// DIR/ID.part      a copy that is being fetched
constexpr const char* kRecord = "copy.json";
constexpr const char* kProved = "proved";
constexpr int kFilesAtOnce = 4;
constexpr auto kLockWait = std::chrono::milliseconds(100);
constexpr auto kTellEvery = std::chrono::seconds(10);

/// A lock on a file, which the system releases when the process ends.
class FileLock {
 public:
  explicit FileLock(const fs::path& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (fd_ < 0) throw refused("objects", "the file " + path.string(), errno);
  }
  ~FileLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;

  /// Takes the lock, or changes its kind; false where another process has it.
  bool take(int kind) { return ::flock(fd_, kind | LOCK_NB) == 0; }
  void release() { ::flock(fd_, LOCK_UN); }
  /// Notes that the copy is used now.
  void touch() { ::futimens(fd_, nullptr); }

 private:
  int fd_;
};

std::string boot_of_machine() { return first_line("/proc/sys/kernel/random/boot_id"); }

std::string last_name(const Address& address) {
  return address.key.empty() ? address.bucket
                             : address.key.substr(address.key.rfind('/') + 1);
}

/// Returns a directory of /tmp into which only this user writes.
fs::path own_temporary() {
  fs::path dir = fmt::format("/tmp/longhaul-{}", ::geteuid());
  struct stat status{};
  const bool there = ::mkdir(dir.c_str(), 0700) == 0 || errno == EEXIST;
  const bool own = there && ::lstat(dir.c_str(), &status) == 0 &&
                   S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
                   (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (own) return dir;
  fail_input("objects",
             "{}: others may write there, so no copy there can be trusted; set HOME or "
             "XDG_CACHE_HOME, or name a directory with data.cache",
             dir.string());
}

/// What one copy consists of.
struct Content {
  std::string id;
  std::string name;
  bool one_object = false;
  std::vector<ObjectInfo> objects;
  uint64_t bytes = 0;

  /// Returns the path of an object's copy, relative to DIR/ID.
  fs::path file(const ObjectInfo& object, const Address& root) const {
    if (one_object) return name;
    const size_t skip = root.key.empty() ? 0 : root.key.size() + 1;
    return fs::path(name) / join_inside("", object.address.key.substr(skip), "objects");
  }
};

}  // namespace

struct LocalCopies::State {
  std::shared_ptr<ObjectStore> store;
  fs::path dir;
  uint64_t most_bytes = 0;
  std::function<void(const std::string&)> tell;
  std::mutex mutex;  ///< one get() at a time; guards `held`
  std::map<std::string, FileLock> held;
  std::map<std::string, fs::path> got;  ///< by address

  void say(const std::string& line) const {
    if (tell) tell(line);
  }

  Content look(const Address& address) const {
    Content content;
    content.name = last_name(address);
    std::string identity = address.text();
    if (!address.key.empty()) {
      if (const auto object = store->look(address)) {
        content.objects = {*object};
        content.one_object = true;
      }
    }
    if (!content.one_object) content.objects = store->list(address, true);
    if (content.objects.empty()) {
      fail_input("objects",
                 "{}: there is neither such an object nor one below it; correct the "
                 "address",
                 address.text());
    }
    for (const ObjectInfo& object : content.objects) {
      identity +=
          fmt::format("\n{} {} {}", object.address.key, object.version, object.size);
      content.bytes += object.size;
    }
    content.id = hash_hex(identity);
    return content;
  }

  fs::path copy_dir(const std::string& id) const { return dir / id; }
  fs::path lock_file(const std::string& id) const { return dir / (id + ".lock"); }

  /// Returns whether the files have the sizes and, where this boot has not compared them
  /// yet, the hashes of the record. A copy that has not is deleted.
  bool is_good(const std::string& id) const {
    const fs::path copy = copy_dir(id);
    std::error_code absent;
    if (!fs::exists(copy / kRecord, absent)) {
      fs::remove_all(copy, absent);
      return false;
    }
    const auto broken = Failure::of([&] {
      const Json record = read_json(copy / kRecord);
      const bool proved = first_line(copy / kProved) == boot_of_machine();
      const Json& files = record.at("files");
      system::share_among_threads(
          static_cast<int64_t>(files.size()), kFilesAtOnce, [&](int64_t index) {
            const Json& file = files.at(static_cast<size_t>(index));
            const fs::path path =
                join_inside(copy, file.at("name").get<std::string>(), "objects");
            if (fs::file_size(path) != file.at("size").get<uint64_t>()) {
              fail_input("objects", "{}: has another size", path.string());
            }
            if (proved) return;
            BlockHasher hasher;
            hasher.update(MappedFile(path).bytes());
            if (combine_hashes(hasher.finish()) != file.at("hash").get<std::string>()) {
              fail_input("objects", "{}: has another hash", path.string());
            }
          });
      if (!proved) write_text_atomic(copy / kProved, boot_of_machine() + "\n");
    });
    if (!broken) return true;
    say(fmt::format("a copy of an object is damaged and is fetched again: {}",
                    broken->message));
    fs::remove_all(copy, absent);
    return false;
  }

  /// Deletes copies that nobody uses, the longest unused first, until `bytes` more fit.
  void make_room(uint64_t bytes) const {
    const uint64_t free = fs::space(dir).available;
    if (bytes > free || (most_bytes > 0 && bytes > most_bytes)) {
      fail_input("objects",
                 "{}: a copy of {} is needed, and {} are there; make room, raise "
                 "data.cache_gb or name a larger disk with data.cache",
                 dir.string(), human_bytes(bytes),
                 human_bytes(most_bytes > 0 ? std::min(free, most_bytes) : free));
    }
    if (most_bytes == 0) return;
    std::vector<std::pair<fs::file_time_type, std::string>> copies;
    std::map<std::string, uint64_t> sizes;
    uint64_t total = bytes;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
      std::error_code absent;
      if (entry.path().extension() != ".lock") continue;
      const std::string id = entry.path().stem().string();
      if (!fs::exists(copy_dir(id) / kRecord, absent)) continue;
      sizes[id] = read_json(copy_dir(id) / kRecord).value("bytes", uint64_t{0});
      total += sizes[id];
      copies.emplace_back(entry.last_write_time(), id);
    }
    std::ranges::sort(copies);
    for (const auto& [used, id] : copies) {
      if (total <= most_bytes) return;
      FileLock lock(lock_file(id));
      if (held.contains(id) || !lock.take(LOCK_EX)) continue;
      fs::remove_all(copy_dir(id));
      total -= sizes[id];
      say(fmt::format("deleted a copy of {} that was unused the longest, to make room",
                      human_bytes(sizes[id])));
    }
    if (total <= most_bytes) return;
    fail_input("objects",
               "{}: a copy of {} does not fit beside those in use into {}; raise "
               "data.cache_gb",
               dir.string(), human_bytes(bytes), human_bytes(most_bytes));
  }

  void fetch(const Content& content, const Address& address) const {
    make_room(content.bytes);
    const fs::path part = dir / (content.id + ".part");
    fs::remove_all(part);
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
              store->fetch(object, part / content.file(object, address));
          done += object.size;
          const std::lock_guard lock(telling);
          files[index]["hash"] = hash;
          const auto now = std::chrono::steady_clock::now();
          if (now - told < kTellEvery) return;
          told = now;
          say(fmt::format("fetched {} of {} of {}", human_bytes(done.load()),
                          human_bytes(content.bytes), address.text()));
        });
    const Json record = {
        {"address", address.text()}, {"bytes", content.bytes}, {"files", files}};
    write_text_durable(part / kRecord, json_text(record, 1) + "\n");
    write_text_durable(part / kProved, boot_of_machine() + "\n");
    sync_directory(part);
    fs::rename(part, copy_dir(content.id));
    sync_directory(dir);
    say(fmt::format("fetched {} of {}", human_bytes(content.bytes), address.text()));
  }
};

LocalCopies::LocalCopies(std::shared_ptr<ObjectStore> store, fs::path dir,
                         uint64_t most_bytes,
                         std::function<void(const std::string&)> tell)
    : state_(std::make_unique<State>()) {
  state_->store = std::move(store);
  state_->dir = std::move(dir);
  state_->most_bytes = most_bytes;
  state_->tell = std::move(tell);
}
LocalCopies::~LocalCopies() = default;

fs::path LocalCopies::get(const Address& address) {
  const std::lock_guard guard(state_->mutex);
  if (const auto known = state_->got.find(address.text()); known != state_->got.end()) {
    return known->second;
  }
  const Content content = state_->look(address);
  make_directories_durable(state_->dir);
  FileLock lock(state_->lock_file(content.id));
  auto told = std::chrono::steady_clock::now();
  bool shared = false;
  while (!lock.take(LOCK_EX)) {
    // Those that use a copy, which one of them has proved, share the lock.
    if (lock.take(LOCK_SH)) {
      std::error_code absent;
      shared = fs::exists(state_->copy_dir(content.id) / kRecord, absent);
      if (shared) break;
      lock.release();
    }
    std::this_thread::sleep_for(kLockWait);
    const auto now = std::chrono::steady_clock::now();
    if (now - told < kTellEvery) continue;
    told = now;
    state_->say(
        fmt::format("waiting for another process that fetches {}", address.text()));
  }
  if (!shared && !state_->is_good(content.id)) state_->fetch(content, address);
  lock.touch();
  while (!lock.take(LOCK_SH)) std::this_thread::sleep_for(kLockWait);
  state_->held.emplace(content.id, std::move(lock));
  const fs::path path = state_->copy_dir(content.id) / content.name;
  state_->got.emplace(address.text(), path);
  return path;
}

fs::path default_cache() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const fs::path base = cache != nullptr && *cache == '/'  ? fs::path(cache)
                        : home != nullptr && *home != '\0' ? fs::path(home) / ".cache"
                                                           : own_temporary();
  return base / "longhaul/objects";
}

}  // namespace longhaul::objects
