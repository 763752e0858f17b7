#include "longhaul/system/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::system {
namespace {

/// Further files that the process may open at the same time.
constexpr size_t kOthers = 16;

/// Returns how many files are open. If that cannot be told, it is 3, as every process has
/// its standard streams.
size_t open_now() {
  std::error_code error;
  const std::filesystem::directory_iterator all("/proc/self/fd", error);
  if (error) return 3;
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

/// Raises a limit towards `wanted`, and returns what is allowed then.
rlim_t allow(__rlimit_resource which, rlim_t wanted) {
  rlimit limit{};
  if (::getrlimit(which, &limit) != 0) return RLIM_INFINITY;
  if (limit.rlim_cur >= wanted) return limit.rlim_cur;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(which, &limit);
  return limit.rlim_cur;
}

}  // namespace

void allow_open_files(size_t more) { allow(RLIMIT_NOFILE, open_now() + more + kOthers); }

void need_open_files(size_t more, const std::string& area, const std::string& what) {
  const rlim_t wanted = open_now() + more + kOthers;
  const rlim_t allowed = allow(RLIMIT_NOFILE, wanted);
  if (allowed >= wanted) return;
  fail_input(area,
             "{} needs {} open files at once; with the files that this process has open "
             "these are {}, and {} are allowed; raise the hard limit (ulimit -Hn)",
             what, more, wanted, allowed);
}

void need_file_size(uint64_t bytes, const std::string& area, const std::string& what) {
  const rlim_t allowed = allow(RLIMIT_FSIZE, bytes);
  if (allowed >= bytes) return;
  fail_input(
      area,
      "{} needs a file of {}, and {} are allowed; raise the hard limit (ulimit -Hf)",
      what, human_bytes(bytes), human_bytes(allowed));
}

}  // namespace longhaul::system
