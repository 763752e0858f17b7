#pragma once

#include <arrow/filesystem/s3fs.h>
#include <arrow/result.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/objects/etag.h"
#include "longhaul/objects/object_store.h"
#include "longhaul/objects/service/retries.h"
#include "longhaul/objects/service/s3_clients.h"
#include "longhaul/objects/service/store_errors.h"

namespace longhaul::objects {

/// Returns whether Arrow's message says that an object is absent.
bool is_absent(const arrow::Status& status);
/// Returns whether Arrow's message holds a word.
bool names(const arrow::Status& status, std::string_view word);

/// Sends requests to a store, sends those again that fail for a passing reason, and finds
/// out why others fail. Any thread may call it.
class S3Requests {
 public:
  std::shared_ptr<Patience> patience = std::make_shared<Patience>();
  S3Clients clients{patience};
  std::atomic<uint64_t> bytes_read = 0;

  /// Does one request. Waits while kRequestsInFlight others are under way.
  template <typename Work>
  auto request(const Address& address, Work work) {
    return request([&] { return clients.client(address); },
                   [&](const S3Clients::Named& named) { return work(*named.client); });
  }
  /// Does one request with the client that `choose` returns. Waits while
  /// kRequestsInFlight others are under way.
  template <typename Choose, typename Work>
    requires std::is_invocable_v<Choose>
  auto request(Choose choose, Work work) {
    const S3Clients::Named named = choose();
    places_.acquire();
    const WorkBegan now;
    ++patience->requests;
    auto result = work(named);
    places_.release();
    return result;
  }

  /// Calls `work` again, as long as the patience lasts, while it fails with a Temporary
  /// error. Expired credentials are such an error, since their source may have new ones
  /// by now. Arrow's client itself does not ask again if the text of an answer is cut
  /// off. With `once_more`, work whose first try may have used up the patience is tried
  /// once more in any case.
  template <typename Work>
  auto with_patience(Work work,
                     Patience::Clock::time_point since = Patience::Clock::now(),
                     bool once_more = true) {
    const int64_t given_up = patience->given_up;
    for (int64_t attempt = 0;; ++attempt) {
      try {
        return work();
      } catch (const Error& error) {
        const bool passes = error.kind() == ErrorKind::Temporary;
        const bool was_long = once_more && attempt == 0 && patience->given_up == given_up;
        if (!passes || !patience->wait_for_retry(since, attempt, was_long)) throw;
        if (says_expired(error)) clients.forget();
      }
    }
  }

  /// Throws the error of a request that has failed, and asks the store for the reason if
  /// the answer had none.
  [[noreturn]] void fail(const arrow::Status& told, const Address& address,
                         const char* doing);
  void check(const arrow::Status& status, const Address& address, const char* doing) {
    if (!status.ok()) fail(status, address, doing);
  }

  /// Asks for an object's size and version; nothing if it is absent.
  std::optional<ObjectInfo> look(const Address& address);
  /// Returns an object with the version that it had when it was asked about for the first
  /// time. Throws InputError if `object` has another version.
  ObjectInfo wanted(const ObjectInfo& object);
  /// Keeps what the store said about an object for the reads that follow.
  void remember(const ObjectInfo& one);
  /// Lists what lies below a prefix, at any depth or (without `deep`) just below it, page
  /// by page. Fails if the store sends a page twice.
  std::vector<arrow::fs::FileInfo> list(const Address& prefix, bool deep = true);
  /// Must be called when a listing was empty. Throws InputError if there is no such
  /// bucket.
  void require_bucket(const Address& address);

  /// Reads a range of an object, and tries again while the patience lasts.
  void read_range(const ObjectInfo& one, uint64_t offset, std::span<std::byte> to);
  /// Reads an object of this size whole, and returns its hash; an empty text if it has
  /// another size.
  std::string hash_of(const Address& address, uint64_t size);
  /// Returns an EtagProof with which to compare the bytes of an object; nothing if its
  /// ETag is not comparable.
  std::optional<EtagProof> proof_of(const ObjectInfo& one);
  /// Must be called if an object's bytes came twice alike and do not fit its ETag. Notes
  /// that the ETags of its bucket are not made of MD5s. For an object that was sent at
  /// once, has_other_etags or the objects beside it must confirm that. Throws InputError
  /// if they do not, since the bytes may be another object's.
  void note_other_etag(const ObjectInfo& one, const EtagProof& proof);
  /// Does what ObjectStore::came_right() promises.
  bool came_right(const ObjectInfo& one, const std::string& digest);

 private:
  /// What the store has said about an object.
  struct Known {
    uint64_t size = 0;
    std::string version;
  };
  arrow::Status reason(const Address& address, const arrow::Status& told);
  template <typename Take>
  void read_whole(const ObjectInfo& one, Take take);
  std::vector<ObjectInfo> small_ones_beside(const ObjectInfo& one);
  bool none_beside_fits(const ObjectInfo& one, const std::string& digest);
  arrow::Result<bool> read_once(const ObjectInfo& one, uint64_t offset,
                                std::span<std::byte> to, std::byte last);
  arrow::Result<bool> read_proved(const ObjectInfo& one, uint64_t offset,
                                  std::span<std::byte> to);

  std::counting_semaphore<> places_{kRequestsInFlight};
  std::mutex deciding_;                 ///< held while it is found out what ETags are
  std::mutex mutex_;                    ///< guards what follows
  std::set<std::string> seen_;          ///< buckets that exist
  std::map<std::string, Known> known_;  ///< by path
  std::deque<std::string> order_;       ///< paths of `known_`, the oldest first
  /// Buckets with ETags that are not made of MD5s: [0] of objects that were sent in
  /// parts, [1] of objects that were sent at once.
  std::set<std::string> other_etags_[2];
};

}  // namespace longhaul::objects
