#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/objects/local_copy.h"
#include "longhaul/objects/object_store.h"

namespace longhaul::data {

/// Objects in memory. A test sees what was asked for, and may make a read fail.
class MemoryObjects final : public objects::ObjectStore {
 public:
  struct Request {
    std::string key;
    uint64_t offset = 0;
    uint64_t size = 0;
  };

  /// Makes or replaces an object of the bucket "bucket"; without a version it gets one of
  /// its own.
  void put(const std::string& key, std::string content, std::string version = {}) {
    const std::lock_guard lock(mutex_);
    if (version.empty()) version = "v" + std::to_string(++puts_);
    objects_[key] = {std::move(content), std::move(version)};
  }
  void remove(const std::string& key) {
    const std::lock_guard lock(mutex_);
    objects_.erase(key);
  }
  std::vector<Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  std::optional<objects::ObjectInfo> look(const objects::Address& address) override {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(address.key);
    if (address.bucket != "bucket" || found == objects_.end()) return std::nullopt;
    return info(found->first);
  }
  std::vector<objects::ObjectInfo> list(const objects::Address& prefix,
                                        bool versions) override {
    if (before_list) before_list();
    const std::lock_guard lock(mutex_);
    const std::string start = prefix.key.empty() ? "" : prefix.key + "/";
    std::vector<objects::ObjectInfo> found;
    for (const auto& [key, object] : objects_) {
      if (prefix.bucket != "bucket" || !key.starts_with(start)) continue;
      found.push_back(info(key));
      if (!versions) found.back().version.clear();
    }
    return found;
  }
  void read(const objects::ObjectInfo& object, uint64_t offset,
            std::span<std::byte> to) override {
    if (before_read) before_read(offset);
    const std::lock_guard lock(mutex_);
    const std::string& content = objects_.at(object.address.key).content;
    requests_.push_back({object.address.key, offset, to.size()});
    if (offset + to.size() > content.size()) {
      throw TemporaryError("objects", object.address.text() + ": fewer bytes came");
    }
    std::memcpy(to.data(), content.data() + offset, to.size());
  }
  std::shared_ptr<const std::byte[]> read_shared(const objects::ObjectInfo& object,
                                                 uint64_t offset,
                                                 uint64_t count) override {
    std::shared_ptr<std::byte[]> bytes(new std::byte[count]);
    read(object, offset, {bytes.get(), count});
    return bytes;
  }
  void prove_unchanged(const objects::ObjectInfo& object) override {
    const auto now = look(object.address);
    if (now && now->version == object.version) return;
    throw InputError("objects", object.address.text() + ": was replaced");
  }
  bool came_right(const objects::ObjectInfo& object, const std::string& digest) override {
    doubted.push_back(object.address.key + " " + digest);
    return false;
  }
  std::optional<std::string> read_text(const objects::Address& address,
                                       uint64_t /*limit*/) override {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(address.key);
    if (found == objects_.end()) return std::nullopt;
    return found->second.content;
  }

  /// Returns the functions by which local copies of these objects ask the store.
  objects::CopyRequests copy_requests() {
    objects::CopyRequests requests;
    requests.look = [this](const objects::Address& address) { return look(address); };
    requests.list = [this](const objects::Address& prefix) {
      return list(prefix, /*versions=*/true);
    };
    requests.fetch = [this](const objects::ObjectInfo& object, const fs::path& to) {
      prove_unchanged(object);
      std::string content(object.size, '\0');
      read(object, 0, std::as_writable_bytes(std::span(content)));
      write_text_durable(to, content);
      BlockHasher hasher;
      hasher.update(std::as_bytes(std::span(content)));
      return combine_hashes(hasher.finish());
    };
    return requests;
  }

  /// Called before each read, by the thread that reads.
  std::function<void(uint64_t offset)> before_read;
  std::function<void()> before_list;  ///< may throw
  std::vector<std::string> doubted;   ///< what came_right() was asked

 private:
  struct Object {
    std::string content;
    std::string version;
  };
  objects::ObjectInfo info(const std::string& key) const {
    const Object& object = objects_.at(key);
    return {{"bucket", key}, object.content.size(), object.version};
  }

  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
  std::vector<Request> requests_;
  int puts_ = 0;
};

}  // namespace longhaul::data
