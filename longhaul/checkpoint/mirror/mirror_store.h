#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/objects/object_store.h"

namespace longhaul::checkpoint {

/// What a mirror of checkpoints asks of the store where it lies. Names are relative to
/// the mirror's address: "step_00000005/a1_rank_00000.json". Any thread may call it;
/// errors are those of objects::ObjectStore.
class MirrorStore {
 public:
  struct Entry {
    std::string name;
    uint64_t size = 0;
  };

  virtual ~MirrorStore() = default;
  /// Returns the mirror's address, for messages.
  virtual std::string place() const = 0;
  /// Returns what lies below a name, at any depth, sorted by name; everything for the
  /// empty name.
  virtual std::vector<Entry> list(const std::string& below) = 0;
  /// Copies a local file, and returns the hash of what was sent (combine_hashes).
  virtual std::string put(const fs::path& from, const std::string& name) = 0;
  /// Copies to a new local file, durably, and returns the hash of what was received.
  virtual std::string fetch(const std::string& name, const fs::path& to) = 0;
  virtual void put_text(const std::string& text, const std::string& name) = 0;
  /// Returns a small object's text; nothing where there is no such object.
  virtual std::optional<std::string> read_text(const std::string& name) = 0;
  virtual void remove(const std::string& name) = 0;
  /// Removes everything below a name.
  virtual void remove_all(const std::string& below) = 0;
  /// Makes requests under way, and all later ones, throw TemporaryError.
  virtual void stop() = 0;
  /// Returns how many requests were tried again so far.
  virtual int64_t retries() const = 0;
};

/// Returns the mirror at an address of an object store. No request is sent yet.
std::unique_ptr<MirrorStore> open_mirror(
    const objects::Address& address,
    objects::ObjectStore::Priority priority = objects::ObjectStore::Priority::Normal);

}  // namespace longhaul::checkpoint
