#include "longhaul/objects/copy_paths.h"

#include <map>
#include <mutex>
#include <system_error>

namespace longhaul::objects {
namespace {

struct CopyPaths {
  std::mutex mutex;
  std::map<std::string, std::string> addresses;  ///< by path
};

/// Returns what this process has noted. It is never destroyed: the last message may come
/// late.
CopyPaths& copy_paths() {
  static CopyPaths& one = *new CopyPaths;
  return one;
}

void replace_all(std::string& text, const std::string& path, const std::string& by) {
  for (size_t at = text.find(path); at != std::string::npos; at = text.find(path, at)) {
    text.replace(at, path.size(), by);
    at += by.size();
  }
}

}  // namespace

void note_copy(const fs::path& path, const Address& address) {
  std::error_code unknown;
  const fs::path real = fs::weakly_canonical(path, unknown);
  const std::lock_guard lock(copy_paths().mutex);
  copy_paths().addresses[path.string()] = address.text();
  if (!unknown) copy_paths().addresses[real.string()] = address.text();
}

std::string with_addresses(std::string text) {
  const std::lock_guard lock(copy_paths().mutex);
  // Backwards, so that a path comes before what it begins with.
  const auto& addresses = copy_paths().addresses;
  for (auto next = addresses.rbegin(); next != addresses.rend(); ++next) {
    replace_all(text, next->first, next->second);
  }
  return text;
}

}  // namespace longhaul::objects
