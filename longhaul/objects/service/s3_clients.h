#pragma once

#include <arrow/filesystem/s3fs.h>
#include <arrow/util/cancel.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "longhaul/objects/address.h"
#include "longhaul/objects/service/retries.h"

namespace longhaul::objects {

/// Returns "BUCKET/KEY", as Arrow's file system names an object.
std::string path_of(const Address& address);

/// The clients of Arrow that do a store's requests. Arrow's S3 part starts with the first
/// one and ends with this object. Any thread may call it.
class S3Clients {
 public:
  /// A client, and how it names an object.
  struct Named {
    std::shared_ptr<arrow::fs::S3FileSystem> client;
    std::string path;
  };

  explicit S3Clients(std::shared_ptr<Patience> patience)
      : patience_(std::move(patience)) {}
  ~S3Clients();

  /// Returns the client for an object or a bucket.
  Named client(const Address& address);
  /// Returns the client that removes an object. After a removal Arrow makes an object for
  /// the directory of the removed object. Nobody has asked for that object, and a store
  /// that keeps files takes it for a file. But Arrow does not make a bucket again. So
  /// this client takes the directory for a bucket, which leads to the same addresses. If
  /// the directory's name cannot stand for a bucket's, the result is client().
  Named remover(const Address& address);
  /// Makes all clients anew at the next request: their credentials may have been renewed.
  void forget();
  /// Ends the listings under way, which their callers have given up, and does forget().
  void end_listings();
  /// Returns whether the store compares what it gets with checksums that the client
  /// sends. It is known once there is a client.
  bool have_checksums() const { return checksums_; }

 private:
  /// Makes the client of a bucket. With `above`, makes a client that takes the path
  /// `above` in the bucket for the store's host, and so a directory in `above` for a
  /// bucket. The result is null if it is not known how the path is addressed.
  std::shared_ptr<arrow::fs::S3FileSystem> make(
      const Address& address, std::optional<std::string> above = std::nullopt);

  std::shared_ptr<Patience> patience_;
  std::atomic<bool> checksums_ = true;
  std::mutex mutex_;  ///< guards what follows
  arrow::StopSource listings_;
  bool started_ = false;
  /// The clients of make(), by "BUCKET", or by "/BUCKET/ABOVE" for those made with
  /// `above`.
  std::map<std::string, std::shared_ptr<arrow::fs::S3FileSystem>> clients_;
};

}  // namespace longhaul::objects
