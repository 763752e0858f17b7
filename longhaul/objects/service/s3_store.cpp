#include "longhaul/objects/service/s3_store.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <semaphore>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/objects/service/s3_requests.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::objects {
namespace {

namespace af = arrow::fs;

/// The bytes of each request of fetch(): a multiple of the blocks that are hashed.
constexpr uint64_t kFetchBytes = 8 * kHashBlockBytes;
constexpr int kFetchThreads = 4;
/// The size of the pieces in which put() hands a file to Arrow, and how many of them are
/// under way at most.
constexpr uint64_t kPutBytes = uint64_t{16} << 20;
constexpr int kPutPieces = 4;
/// The most bytes of an object: Arrow sends parts of 10 MiB, and a store allows 10,000.
constexpr uint64_t kLargestPut = uint64_t{10'000} * (uint64_t{10} << 20);

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

 private:
  std::vector<uint8_t> bytes_;
  std::shared_ptr<std::counting_semaphore<>> places_;
};

}  // namespace

struct S3Store::State : S3Requests {
  std::atomic<uint64_t> bytes_written = 0;

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
      fail(status, address, "remove");
    });
  }

  /// Copies an object to a new file. Returns the file's hash.
  std::string fetch_once(const ObjectInfo& one, const fs::path& to) {
    File file = File::create(to);
    const uint64_t pieces = (one.size + kFetchBytes - 1) / kFetchBytes;
    std::vector<std::vector<std::string>> hashes(pieces);
    system::share_among_threads(
        static_cast<int64_t>(pieces), kFetchThreads, [&](int64_t index) {
          const uint64_t begin = static_cast<uint64_t>(index) * kFetchBytes;
          std::vector<std::byte> bytes(std::min(kFetchBytes, one.size - begin));
          read_range(one, begin, bytes);
          BlockHasher hasher;
          hasher.update(bytes);
          hashes[static_cast<size_t>(index)] = hasher.finish();
          for (size_t done = 0; done < bytes.size();) {
            const ssize_t count =
                ::pwrite(file.fd(), bytes.data() + done, bytes.size() - done,
                         static_cast<off_t>(begin + done));
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) {
              fail_temporary("objects", "{}: cannot write: {}; make room there",
                             to.string(), std::strerror(errno));
            }
            done += static_cast<size_t>(count);
          }
        });
    file.sync();
    const std::optional<ObjectInfo> now = look(one.address);
    if (!now || now->version != one.version) {
      fail_input("objects",
                 "{}: the object was replaced while it was read; start again when nobody "
                 "changes it",
                 one.address.text());
    }
    std::vector<std::string> blocks;
    for (const auto& some : hashes) blocks.insert(blocks.end(), some.begin(), some.end());
    return combine_hashes(blocks);
  }

  /// Copies an object until the file fits its ETag, or until the same bytes come twice.
  std::string fetch_proved(const ObjectInfo& one, const fs::path& to) {
    const auto since = Patience::Clock::now();
    std::string before;
    for (int64_t attempt = 0;; ++attempt) {
      std::string hash = fetch_once(one, to);
      std::optional<EtagProof> proof = proof_of(one);
      if (!proof) return hash;
      proof->update(MappedFile(to).bytes());
      if (proof->fits()) return hash;
      if (hash == before) {
        note_other_etag(one, *proof);
        return hash;
      }
      before = std::move(hash);
      fs::remove(to);
      if (!patience->wait_for_retry(since, attempt, /*in_any_case=*/attempt == 0)) {
        fail_temporary("objects",
                       "{}: the store gave other bytes each time that it was read; start "
                       "again later",
                       one.address.text());
      }
    }
  }
};

S3Store::S3Store() : state_(std::make_unique<State>()) {}
S3Store::~S3Store() = default;

std::optional<ObjectInfo> S3Store::look(const Address& address) {
  std::optional<ObjectInfo> one = state_->look(address);
  if (one) state_->remember(*one);
  return one;
}

std::vector<ObjectInfo> S3Store::list(const Address& prefix, bool versions) {
  const std::vector<af::FileInfo> found = state_->list(prefix);
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
        // A client shortens "a/../b" to "b", so that look() would ask for another object.
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

bool S3Store::came_right(const ObjectInfo& object, const std::string& digest) {
  return state_->came_right(state_->wanted(object), digest);
}

std::string S3Store::fetch(const ObjectInfo& object, const fs::path& to) {
  const ObjectInfo one = state_->wanted(object);
  try {
    return state_->fetch_proved(one, to);
  } catch (...) {
    try_remove(to);
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
  return state_->with_patience([&] {
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
      fail_temporary("objects",
                     "{}: the store has other bytes than it was sent from {}; the object "
                     "was removed, start again",
                     to.text(), from.string());
    }
    return hash;
  });
}

void S3Store::put_text(const std::string& text, const Address& to) {
  state_->with_patience([&] {
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
            [&] { return state_->clients.remover(address); },
            [](const auto& named) { return named.client->DeleteFile(named.path); });
      },
      [&] { return !state_->look(address); });
}

void S3Store::remove_all(const Address& prefix) {
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
