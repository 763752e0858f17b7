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
/// InputError, with what to do, if the store refuses: no such bucket, no permission,
/// expired credentials. If the program longhaul-objects is absent (a build without
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

  /// Returns what the store says about an object; nothing if there is no such object.
  virtual std::optional<ObjectInfo> look(const Address& address);
  /// Returns all objects whose key is the address's key, a slash and more, at any depth,
  /// sorted by the bytes of their keys; nothing if there is no such object. It leaves out
  /// objects of size 0 whose key ends with a slash. An empty key lists the bucket.
  /// Versions are empty if `versions` is false, since each of them takes a request. They
  /// are also empty for objects whose keys are no paths (is_path()), which cannot be
  /// opened.
  virtual std::vector<ObjectInfo> list(const Address& prefix, bool versions);

  /// Reads exactly `to.size()` bytes from `offset` on. Throws TemporaryError if the store
  /// gives fewer, and InputError if the object has another version than `object` when it
  /// is opened for the first time. Call prove_unchanged() when everything has been read
  /// and before the bytes are trusted.
  virtual void read(const ObjectInfo& object, uint64_t offset, std::span<std::byte> to);
  /// Returns whether the bytes of an object may be used although they do not fit its
  /// ETag. `digest` is EtagProof::digest() of the bytes. Reads the object again, and
  /// returns true if the same bytes come again and the store's ETags need not be MD5s.
  /// Throws InputError if the same bytes come again and the ETags should be MD5s.
  virtual bool came_right(const ObjectInfo& object, const std::string& digest);
  /// Returns `count` bytes from `offset` on as read() reads them, without a copy between
  /// the processes; kPlaceBytes at most. They may outlive this object.
  virtual std::shared_ptr<const std::byte[]> read_shared(const ObjectInfo& object,
                                                         uint64_t offset, uint64_t count);
  /// Throws InputError if the object is gone, or has been replaced since `object` was
  /// made.
  virtual void prove_unchanged(const ObjectInfo& object);

  /// Copies a whole object to a new local file, by several requests at once, and syncs
  /// the file to disk. Returns the file's hash (combine_hashes of its blocks,
  /// base/hash.h). If it throws, no file is left. Proves that the object is unchanged,
  /// and that the bytes fit its ETag. Bytes that do not fit are fetched again, and are
  /// used if came_right() returns true.
  std::string fetch(const ObjectInfo& object, const fs::path& to);
  /// Copies a local file to an object, which is replaced as a whole or not at all.
  /// Returns the hash of what was sent (combine_hashes of its blocks). The store of AWS
  /// compares checksums itself; from other stores the object is read back and compared.
  /// Throws TemporaryError if the bytes differ, and InputError if the file changes its
  /// length while it is sent.
  std::string put(const fs::path& from, const Address& to);
  /// Makes an object of a text.
  void put_text(const std::string& text, const Address& to);
  /// Returns a small object's content after comparing it with the object's ETag; nothing
  /// if there is no such object. Throws InputError if the object is larger than `limit`.
  virtual std::optional<std::string> read_text(const Address& address,
                                               uint64_t limit = uint64_t{1} << 26);
  /// Deletes an object; nothing happens if there is none.
  void remove(const Address& address);
  /// Deletes all objects that list() gives for the prefix and whose keys are paths.
  void remove_all(const Address& prefix);

  /// Ends the work of this object: requests under way throw TemporaryError at once, and
  /// so do all later ones. The error names the signal that asked this process to end.
  void stop();
  /// Throws TemporaryError once stop() was called.
  void require_going() const;

  /// Returns counts of the requests so far. Sends no request.
  ObjectCounts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::objects
