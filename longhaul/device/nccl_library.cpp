#include "longhaul/device/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "longhaul/base/error.h"

namespace longhaul::device {
namespace {

constexpr int kMajor = 2;
constexpr int kOldest = 21400;

/// A function that find() is asked for, and what the program does without it.
struct Newer {
  const char* name;
  const char* since;
  const char* without;
};
constexpr Newer kNewer[] = {
    {"ncclCommInitRankScalable", "2.23", "a group's ranks meet at one address"},
    {"ncclCommMemStats", "2.29", "NCCL's memory is reckoned, not asked for"}};

}  // namespace

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

NcclLibrary::NcclLibrary(const char* file) : file_(file) {
  handle_ = ::dlopen(file, RTLD_NOW | RTLD_NOLOAD);
  if (handle_ == nullptr) handle_ = ::dlopen(file, RTLD_NOW);
  if (handle_ == nullptr) {
    fail_config("comm",
                "{} cannot be loaded ({}); install NCCL, or put its directory into "
                "LD_LIBRARY_PATH",
                file, ::dlerror());
  }
  int (*const get_version)(int*) = get("ncclGetVersion");
  get_version(&version_);
  if (version_ / 10000 != kMajor || version_ < kOldest) {
    fail_config("comm", "{} is NCCL {}; this program needs NCCL {}, at least {}", file,
                nccl_version_text(version_), kMajor, nccl_version_text(kOldest));
  }
}

NcclLibrary::Symbol NcclLibrary::get(const char* name) const {
  const Symbol found = find(name);
  if (found.address == nullptr) {
    fail_config("comm", "{} lacks the function {}; install a newer NCCL", file_, name);
  }
  return found;
}

NcclLibrary::Symbol NcclLibrary::find(const char* name) const {
  return {::dlsym(handle_, name)};
}

std::vector<std::string> NcclLibrary::lacks() const {
  std::vector<std::string> all;
  for (const Newer& function : kNewer) {
    if (find(function.name).address != nullptr) continue;
    all.push_back(fmt::format("NCCL {} has no {} (since {}): {}",
                              nccl_version_text(version_), function.name, function.since,
                              function.without));
  }
  return all;
}

}  // namespace longhaul::device
