#include "longhaul/objects/copy_paths.h"

#include <system_error>

namespace longhaul::objects {
namespace {

void replace_all(std::string& text, const std::string& path, const std::string& by) {
  for (size_t at = text.find(path); at != std::string::npos; at = text.find(path, at)) {
    text.replace(at, path.size(), by);
    at += by.size();
  }
}

}  // namespace

void CopyPaths::note(const fs::path& path, const Address& address) {
  std::error_code unknown;
  const fs::path real = fs::weakly_canonical(path, unknown);
  const std::lock_guard lock(mutex_);
  addresses_[path.string()] = address.text();
  if (!unknown) addresses_[real.string()] = address.text();
}

std::string CopyPaths::with_addresses(std::string text) const {
  const std::lock_guard lock(mutex_);
  // The order is backwards, so that a longer path is replaced before a path with which it
  // begins.
  for (auto next = addresses_.rbegin(); next != addresses_.rend(); ++next) {
    replace_all(text, next->first, next->second);
  }
  return text;
}

}  // namespace longhaul::objects
