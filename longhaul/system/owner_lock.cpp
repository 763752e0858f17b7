#include "longhaul/system/owner_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/system/repeated_work.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::system {
// Members that every lock file has.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LockHolder, attempt, token, job, host, boot, process,
                                   process_start, started_at, released)

namespace {

// A process number has a meaning only within one boot and one process namespace.
std::string boot_name() {
  char space[64] = {};
  if (::readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) space[0] = '\0';
  return first_line("/proc/sys/kernel/random/boot_id") + " " + space;
}

LockHolder this_process() {
  LockHolder holder;
  holder.job = job_id();
  holder.host = host_name();
  holder.boot = boot_name();
  holder.process = ::getpid();
  holder.process_start = process_start(holder.process);
  std::random_device random;
  holder.token = fmt::format("{:08x}{:08x}", random(), random());
  holder.started_at = utc_now();
  return holder;
}

std::string to_text(const LockHolder& holder) {
  Json json = holder;
  json["supervisor"] = holder.supervisor;
  json["start"] = holder.start;
  return json_text(json, 1) + "\n";
}

LockHolder parse_holder(const Json& json) {
  auto holder = json.get<LockHolder>();
  holder.supervisor = json.value("supervisor", "");
  holder.start = json.value("start", int64_t{0});
  return holder;
}

std::optional<LockHolder> read_holder(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return std::nullopt;
  if (error) throw to_error(fs::filesystem_error("stat", path, error));
  const Json json = parse_json(read_text(path, 1 << 16), path.string(), 4);
  const auto refuse = [&](const std::string& problem) {
    return InputError("lock",
                      fmt::format("{}: not a lock file of this program: {}; remove it if "
                                  "nothing runs there",
                                  path.string(), problem));
  };
  try {
    LockHolder holder = parse_holder(json);
    // The token becomes part of a file's name.
    const bool plain = std::ranges::all_of(
        holder.token, [](unsigned char c) { return std::isalnum(c) != 0; });
    if (!plain || holder.token.size() > 64) throw refuse("its token is no name");
    return holder;
  } catch (const Json::exception& problem) {
    throw refuse(words_of(problem));
  }
}

std::string describe(const LockHolder& holder) {
  return fmt::format("attempt {}{} on host {}, process {}, started {}", holder.attempt,
                     holder.job.empty() ? "" : ", job " + holder.job, holder.host,
                     holder.process, holder.started_at);
}

// Returns the seconds since the lease was renewed. With a probe, which is a new file
// beside the lock, both times are taken from the file system's own clock.
double lease_age(const fs::path& lock, bool with_probe) {
  struct stat held{};
  if (::stat(lock.c_str(), &held) != 0) return 1e9;
  if (!with_probe) return system_time() - static_cast<double>(held.st_mtim.tv_sec);
  const fs::path probe =
      lock.string() + fmt::format(".probe.{}.{}", host_name(), ::getpid());
  write_text_atomic(probe, "probe");
  struct stat now{};
  const int result = ::stat(probe.c_str(), &now);
  ::unlink(probe.c_str());
  if (result != 0) return 0.0;
  return static_cast<double>(now.st_mtim.tv_sec - held.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(now.st_mtim.tv_nsec - held.st_mtim.tv_nsec);
}

struct Verdict {
  bool alive = false;
  std::string reason;
  bool by_lease = false;  ///< only the lease tells of the holder
};

/// Tells a holder that renews its lease from a holder that was lost before the lease ran
/// out.
class RenewalWatch {
 public:
  /// Returns whether the lease has been renewed since the first look at this holder.
  bool renewed(const fs::path& lock, const LockHolder& holder) {
    struct stat now{};
    if (::stat(lock.c_str(), &now) != 0) return false;
    const auto time = std::pair(now.st_mtim.tv_sec, now.st_mtim.tv_nsec);
    if (token_ != holder.token) {
      token_ = holder.token;
      first_ = time;
    }
    return time != first_;
  }
  bool told() { return std::exchange(told_, true); }

 private:
  std::string token_;
  std::pair<time_t, long> first_;
  bool told_ = false;
};

Verdict judge(const LockHolder& holder, const fs::path& lock,
              const OwnerLockOptions& options) {
  if (holder.released) return {false, "released"};
  if (!options.supervisor.empty() && holder.supervisor == options.supervisor &&
      holder.start < options.start) {
    return {false, "its supervisor starts this one in its place"};
  }
  const LockHolder here = this_process();
  if (holder.host == here.host && holder.boot == here.boot) {
    const bool alive = process_start(holder.process) == holder.process_start &&
                       holder.process_start != 0;
    return {alive, alive ? "its process runs" : "its process is gone"};
  }
  const auto boot_id = [](const std::string& boot) {
    return boot.substr(0, boot.find(' '));
  };
  if (holder.host == here.host && boot_id(holder.boot) != boot_id(here.boot)) {
    return {false, "its host was booted again"};
  }
  const double age = lease_age(lock, options.probe);
  return {age < options.lease_seconds,
          fmt::format("its lease was renewed {:.0f} s ago", std::max(age, 0.0)), true};
}

/// Waits a moment for another process that is about to replace a dead holder. If that
/// process has died as well, its claim is removed.
void leave_to_next(const fs::path& claim, const OwnerLockOptions& options) {
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::optional<LockHolder> next;
  try {
    next = read_holder(claim);
  } catch (const Error&) {
    // The claim was removed while it was read.
  }
  if (next && !judge(*next, claim, options).alive) ::unlink(claim.c_str());
}

/// Notes when a holder was last at work. Any thread may call it.
class Heart {
 public:
  void set() { beat_ = clock_.seconds(); }
  double idle() const { return clock_.seconds() - beat_; }

 private:
  Stopwatch clock_;
  std::atomic<double> beat_ = 0.0;
};

}  // namespace

struct OwnerLock::Lease {
  std::shared_ptr<Heart> heart = std::make_shared<Heart>();
  Descriptor fd;
  std::optional<RepeatedWork> renewal;  ///< last, so that it is destroyed first
};

OwnerLock::OwnerLock(OwnerLock&& other) noexcept = default;
OwnerLock::~OwnerLock() { release(); }

OwnerLock OwnerLock::acquire(const fs::path& file, const OwnerLockOptions& options) {
  OwnerLock lock;
  lock.path_ = file;
  lock.area_ = options.area;
  lock.object_ = options.object;
  make_directories_durable(file.parent_path());
  LockHolder mine = this_process();
  mine.supervisor = options.supervisor;
  mine.start = options.start;
  bool waited = false;
  RenewalWatch watch;
  Stopwatch trying;
  while (true) {
    const std::optional<LockHolder> other = read_holder(lock.path_);
    if (other) {
      const Verdict verdict = judge(*other, lock.path_, options);
      if (verdict.alive) {
        const bool same_job = !mine.job.empty() && mine.job == other->job &&
                              (mine.host != other->host || options.waits_for_own_job);
        const bool watched =
            options.on_watch && verdict.by_lease && !watch.renewed(lock.path_, *other);
        if (!same_job && !watched) {
          fail_input(options.area, "{}: another process {} ({}; {}); stop it, or {}",
                     file.parent_path().string(), options.occupation, describe(*other),
                     verdict.reason, options.advice);
        }
        // The same job has been started again on other nodes. Its old lease must run out
        // first.
        waited = true;
        if (watched && !watch.told()) {
          options.on_watch(fmt::format(
              "{}: {}; {}: this process waits until the lease is renewed or runs out, at "
              "most {:.0f} s",
              options.area, describe(*other), verdict.reason, options.lease_seconds));
        }
        std::this_thread::sleep_for(
            std::chrono::duration<double>(std::min(1.0, options.renew_seconds / 4)));
        trying = {};
        continue;
      }
      if (!other->released) {
        lock.notes_.push_back(fmt::format("{} taken over from {}: {}{}", options.area,
                                          describe(*other), verdict.reason,
                                          waited ? " (waited for it)" : ""));
      }
    }
    mine.attempt = std::max(other ? other->attempt + 1 : 1, options.least_attempt);
    lock.before_ = other;
    if (lock.try_take(mine, other, options)) break;
    lock.notes_.clear();
    if (trying.seconds() > options.lease_seconds && other) {
      fail_temporary(options.area,
                     "{}: another process has been taking the place of {} for {:.0f} s; "
                     "end that process, or try again",
                     file.string(), describe(*other), trying.seconds());
    }
  }
  lock.start_lease(options);
  return lock;
}

Failure OwnerLock::failure_at(int error, const char* call) const {
  const Error known = to_error(
      fs::filesystem_error(call, path_, std::error_code(error, std::generic_category())));
  return {known.kind(), area_, fmt::format("{} failed: {}", call, known.message())};
}

// Takes the lock. The first holder gives its file the lock's name. The file of a dead
// holder is replaced in one rename, so that the lock's name is never free. Only the
// process that has claimed to be the dead holder's successor may do that. Returns false
// if the caller has to look again.
bool OwnerLock::try_take(const LockHolder& mine, const std::optional<LockHolder>& dead,
                         const OwnerLockOptions& options) {
  const fs::path own = path_.string() + "." + mine.token;
  const fs::path place = dead ? fs::path(path_.string() + ".next." + dead->token) : path_;
  write_text_atomic(own, to_text(mine));
  std::optional<bool> claimed;
  try {
    claimed = rename_at_once(own, place);
  } catch (...) {
    ::unlink(own.c_str());
    throw;
  }
  if (!claimed.value_or(false)) ::unlink(own.c_str());
  if (!claimed) {
    fail_input(area_,
               "{}: its file system has neither hard links nor renames that replace "
               "nothing (RENAME_NOREPLACE), by which one process alone takes {}; {}",
               path_.parent_path().string(), object_, kOtherFileSystem);
  }
  if (!*claimed) {
    if (dead) leave_to_next(place, options);
    return false;
  }
  if (dead) {
    const std::optional<LockHolder> now = read_holder(path_);
    if (!now || now->token != dead->token) {
      ::unlink(place.c_str());
      return false;
    }
    if (::rename(place.c_str(), path_.c_str()) != 0) {
      const int error = errno;
      ::unlink(place.c_str());
      // Another process took this process for dead, and has removed the claim.
      if (error == ENOENT) return false;
      failure_at(error, "rename").raise();
    }
  }
  holder_ = mine;
  return true;
}

void OwnerLock::start_lease(const OwnerLockOptions& options) {
  lease_ = std::make_unique<Lease>();
  lease_->fd = Descriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!lease_->fd.is_open()) failure_at(errno, "open").raise();
  check();
  // The descriptor stays with the file that is open. After a takeover the renewal touches
  // a file without a name, and not the file of the successor.
  lease_->renewal.emplace(
      options.renew_seconds,
      [heart = lease_->heart, fd = lease_->fd.get(), idle = options.idle_seconds] {
        if (heart->idle() < idle) ::futimens(fd, nullptr);
      });
}

std::function<void()> OwnerLock::heart() const {
  return [heart = lease_->heart] { heart->set(); };
}

void OwnerLock::check() const {
  if (lease_) lease_->heart->set();
  std::optional<LockHolder> now;
  std::string problem;
  try {
    now = read_holder(path_);
    problem = now ? "is now held by " + describe(*now)
                  : "is not there: its directory was removed or renamed, or is not "
                    "mounted on " +
                        host_name();
  } catch (const Error& error) {
    problem = error.what();
    // The owner cannot be read now. A later try may succeed.
    if (error.area() == "file") throw TemporaryError(area_, problem);
  }
  if (!now || now->token != holder_.token) {
    throw Error(
        ErrorKind::Internal, area_,
        fmt::format("{}: attempt {} (process {}) no longer owns {}: the lock "
                    "{}; nothing more is written by this attempt",
                    path_.string(), holder_.attempt, holder_.process, object_, problem));
  }
}

bool OwnerLock::is_gone() const {
  std::error_code error;
  const bool there = fs::exists(path_, error);
  if (error) fail_temporary(area_, "{}: {}", path_.string(), error.message());
  return !there;
}

std::optional<LockState> OwnerLock::look(const fs::path& file,
                                         const OwnerLockOptions& options) {
  const std::optional<LockHolder> holder = read_holder(file);
  if (!holder) return std::nullopt;
  const Verdict verdict = judge(*holder, file, options);
  return LockState{*holder, verdict.alive, verdict.reason};
}

void OwnerLock::release() noexcept {
  if (!lease_) return;
  try {
    check();
    LockHolder told = holder_;
    if (!counts_) {
      --told.attempt;
      if (before_) told = *before_;
      // The former holder may still run. The changed token takes the lock from it.
      told.token = holder_.token;
    }
    told.released = true;
    write_text_atomic(path_, to_text(told));
  } catch (...) {
    // Another process has taken the lock, or the disk is full. Then the next start judges
    // this holder by its process.
  }
  lease_.reset();
}

}  // namespace longhaul::system
