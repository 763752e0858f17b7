#pragma once

#include <map>
#include <mutex>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/objects/address.h"

namespace longhaul::objects {

/// Paths of this machine that stand for what addresses name. Any thread may call it.
class CopyPaths {
 public:
  /// Notes that a path stands for an address.
  void note(const fs::path& path, const Address& address);
  /// Returns a text for people in which each noted path is replaced by its address.
  std::string with_addresses(std::string text) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> addresses_;  ///< by path
};

}  // namespace longhaul::objects
