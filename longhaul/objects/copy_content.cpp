#include "longhaul/objects/copy_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <set>
#include <string_view>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"

namespace longhaul::objects {
namespace {

std::string last_name(const Address& address) {
  return address.key.empty() ? address.bucket
                             : address.key.substr(address.key.rfind('/') + 1);
}

/// Throws InputError if objects below a prefix cannot all be files. `skip` bytes of their
/// keys are the prefix and its slash.
void check_names(const std::vector<ObjectInfo>& objects, size_t skip) {
  std::set<std::string_view> keys;
  for (const ObjectInfo& object : objects) keys.insert(object.address.key);
  for (const ObjectInfo& object : objects) {
    const std::string_view key = object.address.key;
    for (size_t begin = skip, end = 0; begin < key.size(); begin = end + 1) {
      end = std::min(key.find('/', begin), key.size());
      if (end - begin > NAME_MAX) {
        fail_input("objects",
                   "{}: a part of the key has {} bytes, and the name of a file {} at "
                   "most; copy the object to a key with shorter parts",
                   object.address.text(), end - begin, NAME_MAX);
      }
      if (end < key.size() && keys.contains(key.substr(0, end))) {
        fail_input(
            "objects",
            "{}: lies below {}, which is an object itself, so no directory can "
            "hold copies of both; move one of the two",
            object.address.text(),
            Address{object.address.bucket, std::string(key.substr(0, end))}.text());
      }
    }
  }
}

}  // namespace

fs::path CopyContent::file(const ObjectInfo& object, const Address& root) const {
  if (one_object) return name;
  const size_t skip = root.key.empty() ? 0 : root.key.size() + 1;
  return fs::path(name) / join_inside("", object.address.key.substr(skip), "objects");
}

CopyContent content_of(const Address& address, std::vector<ObjectInfo> objects,
                       bool one_object) {
  CopyContent content;
  content.name = (fs::path(kCopyContent) / last_name(address)).string();
  content.one_object = one_object;
  for (const ObjectInfo& object : objects) {
    if (!is_path(object.address.key)) content.passed_over.push_back(object.address);
  }
  std::erase_if(objects, [](const ObjectInfo& one) { return !is_path(one.address.key); });
  // The copy of a single object is named by the last part of its key.
  const size_t dir = one_object ? address.key.rfind('/') + 1 : address.key.size() + 1;
  check_names(objects, address.key.empty() ? 0 : dir);
  content.objects = std::move(objects);
  std::string identity = address.text();
  for (const ObjectInfo& object : content.objects) {
    identity +=
        fmt::format("\n{} {} {}", object.address.key, object.version, object.size);
    content.bytes += object.size;
  }
  content.id = hash_hex(identity);
  return content;
}

}  // namespace longhaul::objects
