#include "longhaul/cluster/health/health_storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "longhaul/base/process.h"
#include "longhaul/base/random.h"
#include "longhaul/base/text.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

/// On a large cluster a run makes a few hundred files per checkpoint.
constexpr uint64_t kMinFreeFiles = 10000;
/// Addresses, offsets and lengths for O_DIRECT are multiples of this.
constexpr size_t kAlignment = 4096;

struct FreeMemory {
  void operator()(std::byte* data) const { std::free(data); }
};
using AlignedBytes = std::unique_ptr<std::byte, FreeMemory>;

AlignedBytes aligned_bytes(uint64_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)));
}

HealthCheck no_room(const std::string& text) {
  HealthCheck check = HealthCheck::failed(text);
  check.of_file_system = true;
  return check;
}

/// Fills `into` from the device and returns true if the file system allows that.
/// Otherwise reads what the cache keeps after a request to drop the file, and returns
/// false.
bool read_back(const fs::path& path, std::span<std::byte> into) {
  const Descriptor direct(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (direct.is_open() &&
      ::pread(direct.get(), into.data(), into.size(), 0) == ssize_t(into.size())) {
    return true;
  }
  const File file = File::open_read(path);
  file.drop_cache();
  file.read_at(0, into);
  return false;
}

}  // namespace

HealthCheck check_directory(const fs::path& directory, uint64_t bytes,
                            double min_free_bytes) {
  HealthCheck check;
  struct statvfs space{};
  if (::statvfs(directory.c_str(), &space) != 0) {
    return HealthCheck::failed(fmt::format(
        "{}; mount the directory on this node, or make it", std::strerror(errno)));
  }
  const double free_bytes = double(space.f_bavail) * double(space.f_frsize);
  // Some file systems do not count files at all.
  const bool counts_files = space.f_files > 0;
  check.values = {{"free_bytes", free_bytes},
                  {"free_files", counts_files ? Json(space.f_favail) : Json()}};
  if (free_bytes < min_free_bytes) {
    return no_room(fmt::format("{} are free, but {} are needed; make room",
                               human_bytes(free_bytes), human_bytes(min_free_bytes)));
  }
  if (counts_files && space.f_favail < kMinFreeFiles) {
    return no_room(fmt::format("only {} more files can be created (inodes); make room",
                               uint64_t{space.f_favail}));
  }

  bytes = std::max<uint64_t>(bytes / kAlignment, 1) * kAlignment;
  const AlignedBytes written = aligned_bytes(bytes);
  const AlignedBytes read = aligned_bytes(bytes);
  if (!written || !read)
    return HealthCheck::failed("there is no memory for the comparison");
  const uint64_t key = random_key(static_cast<uint64_t>(1e9 * unix_time()), host_name());
  for (uint64_t at = 0; at < bytes; at += 16) {
    const auto words = philox(key, at, static_cast<uint64_t>(::getpid()));
    std::memcpy(written.get() + at, words.data(), 16);
  }
  // Nobody can foretell the name, and put a link to another file in its place.
  std::string place =
      (directory / fmt::format(".longhaul_health_{}_XXXXXX", host_name())).string();
  if (::mkdtemp(place.data()) == nullptr) {
    return HealthCheck::failed(fmt::format("{}: no directory can be made there: {}",
                                           directory.string(), std::strerror(errno)));
  }
  const ScratchPath temporary(place);
  const fs::path path = temporary.path() / "file";
  const system::Stopwatch writing;
  File file = File::create(path);
  file.write(std::span<const std::byte>(written.get(), bytes));
  const system::Stopwatch syncing;
  file.sync();
  const double sync_seconds = syncing.seconds();
  const double write_seconds = writing.seconds();
  file.drop_cache();
  file.close();
  const system::Stopwatch reading;
  const bool direct = read_back(path, {read.get(), bytes});
  const double read_seconds = reading.seconds();
  const auto [one, other] =
      std::mismatch(written.get(), written.get() + bytes, read.get());
  if (one != written.get() + bytes) {
    return HealthCheck::failed(fmt::format(
        "byte {} of {} was read back with another value; do not save in this directory",
        one - written.get(), bytes));
  }
  const auto rate = [&](double seconds) { return 1e-6 * double(bytes) / seconds; };
  check.values["write_mb_per_s"] = rate(write_seconds);
  check.values["read_mb_per_s"] = rate(read_seconds);
  check.values["sync_seconds"] = sync_seconds;
  check.text = fmt::format(
      "{} written and synced in {:.0f} ms, read back {}in {:.0f} ms; {} free",
      human_bytes(bytes), 1000.0 * write_seconds, direct ? "without the cache " : "",
      1000.0 * read_seconds, human_bytes(free_bytes));
  return check;
}

}  // namespace longhaul::cluster
