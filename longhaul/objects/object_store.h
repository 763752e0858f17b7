#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/objects/address.h"
#include "longhaul/objects/protocol.h"

namespace longhaul::objects {

/// What a store says about one object.
struct ObjectInfo {
  Address address;
  uint64_t size = 0;
  /// The store's ETag. It changes when the object is replaced.
  std::string version = {};
};

/// Reads and writes objects of an S3-compatible store. A process of its own does the
/// work: the program longhaul-objects beside this one. The first request starts the
/// process, which ends with this object. So this program holds no connection and no
/// secret, has no thread of the S3 library, and may fork.
///
/// Region, endpoint, credentials and the file of certificates come from the environment's
/// usual variables and the files of ~/.aws (docs/objects.md). A request that fails for a
/// passing reason is tried again with growing waits, for patience_seconds() at most.
///
/// Every function may be called from any thread, and calls of several threads run side by
/// side, kRequestsInFlight at most. They throw TemporaryError for what may pass, and
/// InputError, with what to do, where the store refuses: no such bucket, no permission,
/// expired credentials. Where the program longhaul-objects is absent (a build without
/// Arrow's S3 part) they throw InputError with that reason. Tests override what is
/// virtual.
class ObjectStore {
 public:
  /// How the process of a store competes for the machine's cores.
  enum class Priority {
    Normal,
    Low,  ///< whatever else runs comes first: copies that nobody waits for
  };
  explicit ObjectStore(Priority priority = Priority::Normal);
  virtual ~ObjectStore();

  /// Returns what the store says about an object; nothing where there is no such object.
  virtual std::optional<ObjectInfo> look(const Address& address);
  /// Returns all objects whose key is the address's key, a slash and more, at any depth,
  /// sorted by the bytes of their keys; nothing where there is no such object. It leaves
  /// out objects of size 0 whose key ends with a slash. An empty key lists the bucket.
  /// Versions are empty where they are not asked for, since each of them takes a request,
  /// and of objects whose keys are no paths (is_path()), which cannot be opened.
  virtual std::vector<ObjectInfo> list(const Address& prefix, bool versions);

  /// Reads exactly `to.size()` bytes from `offset` on. Throws TemporaryError where the
  /// store gives fewer, and InputError where the object has another version than `object`
  /// when it is opened for the first time. Call prove_unchanged() when everything has
  /// been read and before the bytes are trusted.
  virtual void read(const ObjectInfo& object, uint64_t offset, std::span<std::byte> to);
  /// Returns whether the bytes of an object may be used although they do not fit its
  /// ETag. `digest` is EtagProof::digest() of the bytes. Reads the object again, and
  /// returns true where the same bytes come again and the store's ETags need not be MD5s.
  /// Throws InputError where the same bytes come again and the ETags should be MD5s.
  virtual bool came_right(const ObjectInfo& object, const std::string& digest);
  /// Returns `count` bytes from `offset` on as read() reads them, without a copy between
  /// the processes; kPlaceBytes at most. They may outlive this object.
  virtual std::shared_ptr<const std::byte[]> read_shared(const ObjectInfo& object,
                                                         uint64_t offset, uint64_t count);
  /// Throws InputError where the object is gone, or has been replaced since `object` was
  /// made.
  virtual void prove_unchanged(const ObjectInfo& object);

  /// Copies a whole object to a new local file, by several requests at once, and syncs
  /// it. Returns the file's hash (combine_hashes of its blocks, base/hash.h). Where it
  /// throws no file is left. Proves that the object is unchanged, and that the bytes fit
  /// its ETag. Bytes that do not fit are fetched again, and are used where came_right()
  /// returns true.
  std::string fetch(const ObjectInfo& object, const fs::path& to);
  /// Copies a local file to an object, which is replaced as a whole or not at all.
  /// Returns the hash of what was sent, as fetch() does. The store of AWS compares
  /// checksums itself; from other stores the object is read back and compared. Throws
  /// TemporaryError where the bytes differ, and InputError where the file changes its
  /// length meanwhile.
  std::string put(const fs::path& from, const Address& to);
  /// Makes an object of a text.
  void put_text(const std::string& text, const Address& to);
  /// Returns a small object's content, proved as fetch() proves it; nothing where there
  /// is no such object. Throws InputError where it is larger than `limit`.
  virtual std::optional<std::string> read_text(const Address& address,
                                               uint64_t limit = uint64_t{1} << 26);
  /// Deletes an object; nothing happens where there is none.
  void remove(const Address& address);
  /// Deletes all objects that list() gives for the prefix and whose keys are paths.
  void remove_all(const Address& prefix);

  /// Ends the work of this object: requests under way throw TemporaryError at once, and
  /// so do all later ones. The error names the signal that asked this process to end.
  void stop();
  /// Throws TemporaryError once stop() was called.
  void require_going() const;

  /// Returns what the requests have met so far. Asks no store.
  ObjectCounts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::objects
