#include "longhaul/objects/service/s3_store.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/key_value_metadata.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <semaphore>
#include <set>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/objects/service/retries.h"
#include "longhaul/objects/service/s3_clients.h"
#include "longhaul/objects/service/store_errors.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::objects {
namespace {

namespace af = arrow::fs;
using Clock = Patience::Clock;

/// Bytes that one request of fetch() reads: whole blocks of the hash.
constexpr uint64_t kFetchBytes = 8 * kHashBlockBytes;
constexpr int kFetchThreads = 4;
/// Pieces in which put() hands a file to Arrow, and how many of them are under way.
constexpr uint64_t kPutBytes = uint64_t{16} << 20;
constexpr int kPutPieces = 4;
/// The most bytes of an object: Arrow sends 10,000 parts, which a store allows, of 10
/// MiB.
constexpr uint64_t kLargestPut = uint64_t{10'000} * (uint64_t{10} << 20);
/// Objects whose sizes and versions are remembered, which takes some 300 bytes each.
constexpr size_t kMostKnown = 50'000;
/// Room for the text of any error.
constexpr int64_t kErrorBytes = 64 << 10;
/// Bytes at the end of a range that show whether all of it came.
constexpr size_t kTailBytes = 16;

std::byte chance_byte() {
  thread_local std::minstd_rand chance(std::random_device{}());
  return static_cast<std::byte>(chance() >> 8);
}

bool names(const arrow::Status& status, std::string_view word) {
  return status.message().find(word) != std::string::npos;
}

/// Throws the error of a request that has failed for good.
[[noreturn]] void fail(const arrow::Status& status, const Address& address,
                       const char* doing, const Patience& patience) {
  throw store_error(status.message(), address, doing, patience.seconds);
}

/// A buffer that says when Arrow has no more use for it.
class SentPiece : public arrow::Buffer {
 public:
  SentPiece(std::vector<uint8_t> bytes, std::shared_ptr<std::counting_semaphore<>> places)
      : arrow::Buffer(nullptr, 0), bytes_(std::move(bytes)), places_(std::move(places)) {
    data_ = bytes_.data();
    size_ = static_cast<int64_t>(bytes_.size());
    capacity_ = size_;
  }
  ~SentPiece() override { places_->release(); }
  SentPiece(const SentPiece&) = delete;
  SentPiece& operator=(const SentPiece&) = delete;

 private:
  std::vector<uint8_t> bytes_;
  std::shared_ptr<std::counting_semaphore<>> places_;
};

/// What Arrow's client says of an object that is absent.
const arrow::Status kAbsent = arrow::Status::IOError("Path does not exist");

/// Returns whether a body was longer than the range that was asked for: a server that
/// overlooks ranges, or the text of an error.
bool does_not_fit(const arrow::Status& status) {
  return names(status, "Failed to flush response stream");
}

bool is_absent(const arrow::Status& status) {
  return names(status, "Path does not exist") || names(status, "NO_SUCH_KEY") ||
         names(status, "RESOURCE_NOT_FOUND");
}

}  // namespace

struct S3Store::State {
  /// What the store has said about an object.
  struct Known {
    uint64_t size = 0;
    std::string version;
  };
  using KnownObjects = std::map<std::string, Known>;  ///< by path

  std::shared_ptr<Patience> patience = std::make_shared<Patience>();
  S3Clients clients{patience};
  std::atomic<uint64_t> bytes_read = 0;
  std::atomic<uint64_t> bytes_written = 0;
  std::counting_semaphore<> places{kRequestsInFlight};
  std::mutex mutex;            ///< guards what follows
  std::set<std::string> seen;  ///< buckets that exist
  KnownObjects known;
  std::deque<std::string> order;  ///< paths of `known`, the oldest first

  /// Credentials may have been renewed where they come from: the next request asks again.
  void forget_credentials() { clients.forget(); }

  void check(const arrow::Status& status, const Address& address, const char* doing) {
    if (!status.ok()) fail(status, address, doing, *patience);
  }

  /// Does one request, in a place of kRequestsInFlight; once more where credentials have
  /// expired.
  template <typename Work>
  auto request(const Address& address, Work work) {
    return request([&] { return clients.client(address); }, address,
                   [&](const S3Clients::Named& named) { return work(*named.client); });
  }
  /// Does one request likewise, by a client that `choose` gives.
  template <typename Choose, typename Work>
  auto request(Choose choose, const Address& address, Work work) {
    for (bool again = true;; again = false) {
      const S3Clients::Named named = choose();
      places.acquire();
      const WorkBegan now;
      ++patience->requests;
      auto result = work(named);
      places.release();
      const arrow::Status status = [&] {
        if constexpr (std::is_same_v<decltype(result), arrow::Status>) {
          return result;
        } else {
          return result.status();
        }
      }();
      if (status.ok() || !again || !may_be_expired(status.message(), address))
        return result;
      ++patience->retries;
      forget_credentials();
    }
  }

  /// Does work again, for the patience, while it fails for a passing reason. Arrow's
  /// client does not ask again where the text of an answer is cut off. Long work may have
  /// taken the patience by then, and is done once more in any case.
  template <typename Work>
  auto with_patience(Work work) {
    const Clock::time_point since = Clock::now();
    const int64_t given_up = patience->given_up;
    for (int64_t attempt = 0;; ++attempt) {
      try {
        return work();
      } catch (const Error& error) {
        const bool passes = error.kind() == ErrorKind::Temporary;
        const bool was_long = attempt == 0 && patience->given_up == given_up;
        if (!passes || !patience->wait_for_retry(since, attempt, was_long)) throw;
      }
    }
  }

  /// Writes an object, once more where credentials have expired.
  template <typename Write>
  auto write(Write once) {
    return with_patience([&] {
      try {
        return once();
      } catch (const Error& error) {
        if (!says_expired(error)) throw;
      }
      ++patience->retries;
      forget_credentials();
      return once();
    });
  }

  /// Throws InputError where the bucket of a listing that was empty is not there.
  void require_bucket(const Address& address) {
    {
      const std::lock_guard lock(mutex);
      if (seen.contains(address.bucket)) return;
    }
    const auto info =
        request(address, [&](auto& store) { return store.GetFileInfo(address.bucket); });
    // Who may list a bucket need not be allowed to look at the bucket itself.
    const bool denied = names(info.status(), "ACCESS_DENIED");
    if (!denied) check(info.status(), address, "list");
    if (!denied && info->type() == af::FileType::NotFound) {
      fail_input("objects",
                 "{}: the bucket {} is not there; correct the address or make the bucket",
                 address.text(), address.bucket);
    }
    const std::lock_guard lock(mutex);
    seen.insert(address.bucket);
  }

  /// Returns what the store says about a request that has failed with `told`. An answer
  /// to HEAD has no body, and Arrow's client reads that of another one into the place of
  /// the bytes that were asked for. So this asks for bytes with enough place.
  arrow::Status reason(const Address& address, const arrow::Status& told) {
    if (!names(told, "No response body") && !is_absent(told) && !does_not_fit(told)) {
      return told;
    }
    af::FileInfo info(path_of(address), af::FileType::File);
    info.set_size(kErrorBytes);
    const auto got = request(address, [&](auto& store) -> arrow::Result<int64_t> {
      ARROW_ASSIGN_OR_RAISE(const auto file, store.OpenInputFile(info));
      std::vector<std::byte> bytes(kErrorBytes);
      return file->ReadAt(0, kErrorBytes, bytes.data());
    });
    const bool empty = !got.ok() && names(got.status(), "InvalidRange");
    return got.ok() || empty ? told : got.status();
  }

  /// Does what `remove` does, until it succeeds or `is_gone` says that it has. Arrow's
  /// client may make a directory afterwards, which some stores refuse.
  void remove(const Address& address, const std::function<arrow::Status()>& remove,
              const std::function<bool()>& is_gone) {
    const WorkBegan now;
    with_patience([&] {
      const arrow::Status status = [&] {
        const FewRetries few;
        return remove();
      }();
      if (status.ok() || is_absent(status) || is_gone()) return;
      check(reason(address, status), address, "remove");
    });
  }

  /// Asks for an object's size and version; nothing where it is absent.
  std::optional<ObjectInfo> look(const Address& address) {
    auto file = request(
        address, [&](auto& store) { return store.OpenInputFile(path_of(address)); });
    if (!file.ok() && is_absent(file.status())) return std::nullopt;
    if (!file.ok()) check(reason(address, file.status()), address, "open");
    auto size = (*file)->GetSize();
    check(size.status(), address, "open");
    auto metadata = (*file)->ReadMetadata();
    check(metadata.status(), address, "open");
    ObjectInfo object{address, static_cast<uint64_t>(*size), {}};
    if (*metadata) object.version = (*metadata)->Get("ETag").ValueOr("");
    return object;
  }

  /// Returns an object with the version that it had when it was asked about for the first
  /// time. Throws InputError where that is not the wanted one.
  ObjectInfo wanted(const ObjectInfo& object) {
    {
      const std::lock_guard lock(mutex);
      const auto found = known.find(path_of(object.address));
      if (found != known.end() && found->second.version == object.version &&
          found->second.size == object.size) {
        return object;
      }
    }
    std::optional<ObjectInfo> one = look(object.address);
    if (!one) {
      check(reason(object.address, kAbsent), object.address, "open");
      fail_input("objects", "{}: the object is not there any more; start again",
                 object.address.text());
    }
    if ((!object.version.empty() && one->version != object.version) ||
        one->size != object.size) {
      fail_input("objects",
                 "{}: the object was replaced since this command looked at it; start "
                 "again when nobody changes it",
                 object.address.text());
    }
    remember(*one);
    return *std::move(one);
  }

  /// Keeps what the store said about an object for the reads that follow.
  void remember(const ObjectInfo& one) {
    std::string path = path_of(one.address);
    const std::lock_guard lock(mutex);
    if (known.insert_or_assign(path, Known{one.size, one.version}).second) {
      order.push_back(std::move(path));
    }
    while (order.size() > kMostKnown) {
      known.erase(order.front());
      order.pop_front();
    }
  }

  /// Asks for a range once. Returns whether all of it came. Arrow's client counts a body
  /// that is too short as whole, and leaves the rest of the bytes as they were. So the
  /// last bytes are set by chance before, and the very last one to `last`.
  arrow::Result<bool> read_once(const ObjectInfo& one, uint64_t offset,
                                std::span<std::byte> to, std::byte last) {
    const std::span<std::byte> tail = to.last(std::min(to.size(), kTailBytes));
    for (std::byte& byte : tail) byte = chance_byte();
    tail.back() = last;
    // With its size an object is opened without a request.
    af::FileInfo info(path_of(one.address), af::FileType::File);
    info.set_size(static_cast<int64_t>(one.size));
    const auto got = request(one.address, [&](auto& store) -> arrow::Result<int64_t> {
      ARROW_ASSIGN_OR_RAISE(const auto file, store.OpenInputFile(info));
      return file->ReadAt(static_cast<int64_t>(offset), static_cast<int64_t>(to.size()),
                          to.data());
    });
    if (!got.ok()) {
      const arrow::Status why = reason(one.address, got.status());
      if (does_not_fit(why)) return false;
      return why;
    }
    return static_cast<uint64_t>(*got) == to.size() && tail.back() != last;
  }

  /// Asks for a range, and where the last byte is what it was set to, which may be its
  /// true value, for the last bytes once more. Returns whether all of it came.
  arrow::Result<bool> read_proved(const ObjectInfo& one, uint64_t offset,
                                  std::span<std::byte> to) {
    const auto first = read_once(one, offset, to, chance_byte());
    if (!first.ok() || *first) return first;
    const std::span<std::byte> tail = to.last(std::min(to.size(), kTailBytes));
    std::array<std::byte, kTailBytes> bytes{};
    const std::span<std::byte> again = std::span(bytes).first(tail.size());
    const auto second =
        read_once(one, offset + to.size() - tail.size(), again, ~tail.back());
    if (!second.ok() || !*second) return second;
    return std::ranges::equal(tail, again);
  }

  void read_range(const ObjectInfo& one, uint64_t offset, std::span<std::byte> to) {
    const WorkBegan now;
    for (int64_t attempt = 0;; ++attempt) {
      const auto whole = read_proved(one, offset, to);
      check(whole.status(), one.address, "read");
      if (*whole) break;
      if (!patience->wait_for_retry(WorkBegan::time(), attempt)) {
        throw TemporaryError(
            "objects",
            fmt::format("{}: the store gave other than the {} bytes that were asked for "
                        "at byte {}, again and again for {:.0f} seconds; start again "
                        "later",
                        one.address.text(), to.size(), offset, patience->seconds));
      }
    }
    bytes_read += to.size();
  }

  /// Reads an object of this size whole, and returns its hash.
  std::string hash_of(const Address& address, uint64_t size) {
    const std::optional<ObjectInfo> one = look(address);
    BlockHasher hasher;
    if (!one || one->size != size) return {};
    std::vector<std::byte> bytes;
    for (uint64_t begin = 0; begin < size; begin += kFetchBytes) {
      bytes.resize(std::min(kFetchBytes, size - begin));
      read_range(*one, begin, bytes);
      hasher.update(bytes);
    }
    return combine_hashes(hasher.finish());
  }
};

S3Store::S3Store() : state_(std::make_unique<State>()) {}
S3Store::~S3Store() = default;

std::optional<ObjectInfo> S3Store::look(const Address& address) {
  std::optional<ObjectInfo> one = state_->look(address);
  if (one) {
    state_->remember(*one);
    return one;
  }
  const arrow::Status why = state_->reason(address, kAbsent);
  if (!is_absent(why)) state_->check(why, address, "look at");
  return std::nullopt;
}

std::vector<ObjectInfo> S3Store::list(const Address& prefix, bool versions) {
  af::FileSelector below;
  below.base_dir = path_of(prefix);
  below.recursive = true;
  below.allow_not_found = true;
  const std::vector<af::FileInfo> found = state_->with_patience([&] {
    auto listed =
        state_->request(prefix, [&](auto& store) { return store.GetFileInfo(below); });
    state_->check(listed.status(), prefix, "list");
    return *std::move(listed);
  });
  if (found.empty()) state_->require_bucket(prefix);
  std::vector<ObjectInfo> objects;
  for (const af::FileInfo& one : found) {
    if (one.type() != af::FileType::File) continue;
    objects.push_back({{prefix.bucket, one.path().substr(prefix.bucket.size() + 1)},
                       static_cast<uint64_t>(one.size())});
  }
  if (!versions) return objects;
  system::share_among_threads(
      static_cast<int64_t>(objects.size()), kRequestsInFlight, [&](int64_t index) {
        ObjectInfo& object = objects[static_cast<size_t>(index)];
        // A client takes "a/../b" for "b".
        if (!is_path(object.address.key)) return;
        const std::optional<ObjectInfo> one = state_->look(object.address);
        // rclone's server lists a directory that has become empty as an object.
        if (!one && object.size == 0) {
          object.address.key.clear();
          return;
        }
        if (!one) {
          fail_input("objects", "{}: was removed while the store was listed; start again",
                     object.address.text());
        }
        state_->remember(*one);
        object = *one;
      });
  std::erase_if(objects, [](const ObjectInfo& one) { return one.address.key.empty(); });
  return objects;
}

void S3Store::read(const ObjectInfo& object, uint64_t offset, std::span<std::byte> to) {
  if (to.empty()) return;
  state_->read_range(state_->wanted(object), offset, to);
}

std::string S3Store::fetch(const ObjectInfo& object, const fs::path& to) {
  const ObjectInfo one = state_->wanted(object);
  File file = File::create(to);
  try {
    const uint64_t pieces = (object.size + kFetchBytes - 1) / kFetchBytes;
    std::vector<std::vector<std::string>> hashes(pieces);
    system::share_among_threads(
        static_cast<int64_t>(pieces), kFetchThreads, [&](int64_t index) {
          const uint64_t begin = static_cast<uint64_t>(index) * kFetchBytes;
          std::vector<std::byte> bytes(std::min(kFetchBytes, object.size - begin));
          state_->read_range(one, begin, bytes);
          BlockHasher hasher;
          hasher.update(bytes);
          hashes[static_cast<size_t>(index)] = hasher.finish();
          for (size_t done = 0; done < bytes.size();) {
            const ssize_t count =
                ::pwrite(file.fd(), bytes.data() + done, bytes.size() - done,
                         static_cast<off_t>(begin + done));
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) {
              throw TemporaryError("objects",
                                   fmt::format("{}: cannot write: {}; make room there",
                                               to.string(), std::strerror(errno)));
            }
            done += static_cast<size_t>(count);
          }
        });
    file.sync();
    file.close();
    const std::optional<ObjectInfo> now = state_->look(object.address);
    if (!now || now->version != one.version) {
      fail_input("objects",
                 "{}: the object was replaced while it was read; start again when nobody "
                 "changes it",
                 object.address.text());
    }
    std::vector<std::string> blocks;
    for (const auto& some : hashes) blocks.insert(blocks.end(), some.begin(), some.end());
    return combine_hashes(blocks);
  } catch (...) {
    std::error_code ignored;
    fs::remove(to, ignored);
    throw;
  }
}

std::string S3Store::put(const fs::path& from, const Address& to) {
  const File file = File::open_read(from);
  const uint64_t size = file.size();
  if (size > kLargestPut) {
    fail_input("objects",
               "{}: has {}, and an object that is written here has {} at most; split the "
               "file, or spread the checkpoint over more ranks",
               from.string(), human_bytes(size), human_bytes(kLargestPut));
  }
  return state_->write([&] {
    ++state_->patience->requests;
    auto made = state_->clients.client(to).client->OpenOutputStream(path_of(to), nullptr);
    state_->check(made.status(), to, "write");
    const std::shared_ptr<arrow::io::OutputStream>& stream = *made;
    BlockHasher hasher;
    try {
      const auto pieces = std::make_shared<std::counting_semaphore<>>(kPutPieces);
      for (uint64_t offset = 0; offset < size; offset += kPutBytes) {
        pieces->acquire();
        std::vector<uint8_t> bytes(std::min(kPutBytes, size - offset));
        auto piece = std::make_shared<SentPiece>(std::move(bytes), pieces);
        const std::span<std::byte> content(
            reinterpret_cast<std::byte*>(const_cast<uint8_t*>(piece->data())),
            static_cast<size_t>(piece->size()));
        file.read_at(offset, content);
        hasher.update(content);
        state_->check(stream->Write(std::shared_ptr<arrow::Buffer>(std::move(piece))), to,
                      "write");
      }
      if (file.size() != size) {
        fail_input("objects", "{}: has changed its length while it was copied to {}",
                   from.string(), to.text());
      }
      state_->check(stream->Close(), to, "write");
    } catch (...) {
      static_cast<void>(stream->Abort());
      throw;
    }
    state_->bytes_written += size;
    const std::string hash = combine_hashes(hasher.finish());
    if (!state_->clients.have_checksums() && state_->hash_of(to, size) != hash) {
      remove(to);
      throw TemporaryError(
          "objects",
          fmt::format("{}: the store has other bytes than it was sent from {}; "
                      "the object was removed, start again",
                      to.text(), from.string()));
    }
    return hash;
  });
}

void S3Store::put_text(const std::string& text, const Address& to) {
  state_->write([&] {
    ++state_->patience->requests;
    auto made = state_->clients.client(to).client->OpenOutputStream(path_of(to), nullptr);
    state_->check(made.status(), to, "write");
    const arrow::Status written =
        (*made)->Write(text.data(), static_cast<int64_t>(text.size()));
    if (!written.ok()) static_cast<void>((*made)->Abort());
    state_->check(written, to, "write");
    state_->check((*made)->Close(), to, "write");
    state_->bytes_written += text.size();
  });
}

void S3Store::remove(const Address& address) {
  state_->remove(
      address,
      [&] {
        return state_->request(
            [&] { return state_->clients.remover(address); }, address,
            [](const auto& named) { return named.client->DeleteFile(named.path); });
      },
      [&] { return !state_->look(address); });
}

void S3Store::remove_all(const Address& prefix) {
  if (!S3Clients::removes_cleanly(prefix / "object")) {
    return state_->remove(
        prefix,
        [&] {
          return state_->request(
              prefix, [&](auto& store) { return store.DeleteDir(path_of(prefix)); });
        },
        [&] { return list(prefix, /*versions=*/false).empty(); });
  }
  std::vector<ObjectInfo> found = list(prefix, /*versions=*/false);
  std::erase_if(found, [](const ObjectInfo& one) { return !is_path(one.address.key); });
  system::share_among_threads(std::ssize(found), kRequestsInFlight, [&](int64_t index) {
    remove(found[static_cast<size_t>(index)].address);
  });
}

ObjectCounts S3Store::counts() const {
  return {state_->patience->requests, state_->patience->retries, state_->bytes_read,
          state_->bytes_written};
}

void S3Store::give_up() { state_->patience->over = true; }

}  // namespace longhaul::objects
