#include "longhaul/objects/service/s3_requests.h"

#include <arrow/io/interfaces.h>
#include <arrow/util/future.h>
#include <arrow/util/key_value_metadata.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <random>
#include <utility>

#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/objects/service/aws_settings.h"
#include "longhaul/system/terminal.h"

namespace longhaul::objects {
namespace {

namespace af = arrow::fs;

/// The most objects whose sizes and versions are remembered, at some 300 bytes each.
constexpr size_t kMostKnown = 50'000;
/// The size of a buffer that has room for the text of any error.
constexpr int64_t kErrorBytes = 64 << 10;
/// The number of bytes at the end of a range by which to see whether all of it came.
constexpr size_t kTailBytes = 16;
/// The bytes of each request when an object is read whole: a multiple of the blocks that
/// are hashed.
constexpr uint64_t kWholeBytes = 8 * kHashBlockBytes;
/// How many objects are read at most to find out whether a bucket's ETags are MD5s, and
/// the most bytes of such an object.
constexpr size_t kMostBeside = 3;
constexpr int64_t kLargestBeside = int64_t{64} << 20;
/// What Arrow's client says of an object that is absent.
const arrow::Status kAbsent = arrow::Status::IOError("Path does not exist");

std::byte chance_byte() {
  thread_local std::minstd_rand chance(std::random_device{}());
  return static_cast<std::byte>(chance() >> 8);
}

/// Returns whether a body was longer than the range that was asked for, since the server
/// ignores ranges or has sent the text of an error.
bool does_not_fit(const arrow::Status& status) {
  return names(status, "Failed to flush response stream");
}

/// Returns whether the answer was an error whose text the client could not read. The
/// client had put the text into the buffer of a range, in which other bytes stood behind
/// it.
bool is_garbled(const arrow::Status& status) {
  return trimmed(status.message()).ends_with("operation:");
}

}  // namespace

bool names(const arrow::Status& status, std::string_view word) {
  return status.message().find(word) != std::string::npos;
}

bool is_absent(const arrow::Status& status) {
  return names(status, "Path does not exist") || names(status, "NO_SUCH_KEY") ||
         names(status, "RESOURCE_NOT_FOUND");
}

void S3Requests::fail(const arrow::Status& told, const Address& address,
                      const char* doing) {
  const arrow::Status why = reason(address, told);
  const Error error =
      store_error((why.ok() ? told : why).message(), address, doing, patience->seconds);
  // The error may pass if the store could answer a moment later, or if the text of its
  // answer could not be read.
  const bool is_unknown = is_garbled(why) && names(why, "AWS Error UNKNOWN");
  if (why.ok() || is_unknown) throw TemporaryError(error.area(), error.message());
  throw error;
}

/// Returns what the store says about a request that has failed with `told`; OK if the
/// store gives bytes when it is asked again. An answer to HEAD has no body, and Arrow's
/// client puts the body of any other answer into the buffer for the bytes that were asked
/// for. So this asks for bytes with a buffer of kErrorBytes. For a bucket of another
/// region it asks about the bucket, since that error names both regions.
arrow::Status S3Requests::reason(const Address& address, const arrow::Status& told) {
  if (names(told, kElsewhere)) {
    const auto bucket =
        request(address, [&](auto& store) { return store.GetFileInfo(address.bucket); });
    return bucket.ok() ? told : bucket.status();
  }
  if (!names(told, "No response body") && !is_absent(told) && !does_not_fit(told) &&
      !is_garbled(told)) {
    return told;
  }
  af::FileInfo info(path_of(address), af::FileType::File);
  info.set_size(kErrorBytes);
  const auto got = request(address, [&](auto& store) -> arrow::Result<int64_t> {
    ARROW_ASSIGN_OR_RAISE(const auto file, store.OpenInputFile(info));
    std::vector<std::byte> bytes(kErrorBytes);
    return file->ReadAt(0, kErrorBytes, bytes.data());
  });
  const bool answers = got.ok() || names(got.status(), "InvalidRange");
  if (!answers) return got.status();
  return is_absent(told) ? told : arrow::Status::OK();
}

std::optional<ObjectInfo> S3Requests::look(const Address& address) {
  return with_patience([&]() -> std::optional<ObjectInfo> {
    auto file = request(
        address, [&](auto& store) { return store.OpenInputFile(path_of(address)); });
    if (!file.ok() && is_absent(file.status())) {
      const arrow::Status why = reason(address, kAbsent);
      if (is_absent(why)) return std::nullopt;
      fail(why, address, "look at");
    }
    check(file.status(), address, "open");
    auto size = (*file)->GetSize();
    check(size.status(), address, "open");
    auto metadata = (*file)->ReadMetadata();
    check(metadata.status(), address, "open");
    ObjectInfo object{address, static_cast<uint64_t>(*size), {}};
    if (*metadata) object.version = (*metadata)->Get("ETag").ValueOr("");
    return object;
  });
}

ObjectInfo S3Requests::wanted(const ObjectInfo& object) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(path_of(object.address));
    if (found != known_.end() && found->second.version == object.version &&
        found->second.size == object.size) {
      return object;
    }
  }
  std::optional<ObjectInfo> one = look(object.address);
  if (!one) {
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

void S3Requests::remember(const ObjectInfo& one) {
  std::string path = path_of(one.address);
  const std::lock_guard lock(mutex_);
  if (known_.insert_or_assign(path, Known{one.size, one.version}).second) {
    order_.push_back(std::move(path));
  }
  while (order_.size() > kMostKnown) {
    known_.erase(order_.front());
    order_.pop_front();
  }
}

std::vector<af::FileInfo> S3Requests::list(const Address& prefix, bool deep) {
  af::FileSelector below;
  below.base_dir = path_of(prefix);
  below.recursive = deep;
  below.allow_not_found = true;
  return with_patience([&] {
    using Pages = std::vector<af::FileInfo>;
    auto listed = request(prefix, [&](auto& store) -> arrow::Result<Pages> {
      const auto next = store.GetFileInfoGenerator(below);
      Pages all;
      std::set<std::string> firsts;
      while (true) {
        const arrow::Future<Pages> coming = next();
        ARROW_ASSIGN_OR_RAISE(Pages page, coming.result());
        if (page.empty()) return all;
        const auto first = std::ranges::find_if(page, &af::FileInfo::IsFile);
        if (first != page.end() && !firsts.insert(first->path()).second) {
          clients.end_listings();
          return arrow::Status::IOError("the store gives ", first->path(),
                                        " twice in one listing, which may have no end");
        }
        std::ranges::move(page, std::back_inserter(all));
      }
    });
    check(listed.status(), prefix, "list");
    return *std::move(listed);
  });
}

void S3Requests::require_bucket(const Address& address) {
  {
    const std::lock_guard lock(mutex_);
    if (seen_.contains(address.bucket)) return;
  }
  const auto info =
      request(address, [&](auto& store) { return store.GetFileInfo(address.bucket); });
  // A user who may list a bucket is not always allowed to look at the bucket itself.
  const bool denied = names(info.status(), "ACCESS_DENIED");
  if (!denied) check(info.status(), address, "list");
  if (!denied && info->type() == af::FileType::NotFound) {
    fail_input("objects",
               "{}: the bucket {} is not there; correct the address or make the bucket",
               address.text(), address.bucket);
  }
  const std::lock_guard lock(mutex_);
  seen_.insert(address.bucket);
}

/// Asks for a range once. Returns whether all of it came. Arrow's client counts a body
/// that is too short as complete, and leaves the rest of the buffer as it was. So the
/// last bytes are set to random values beforehand, and the very last one to `last`.
arrow::Result<bool> S3Requests::read_once(const ObjectInfo& one, uint64_t offset,
                                          std::span<std::byte> to, std::byte last) {
  const std::span<std::byte> tail = to.last(std::min(to.size(), kTailBytes));
  for (std::byte& byte : tail) byte = chance_byte();
  tail.back() = last;
  // If its size is given, an object is opened without a request.
  af::FileInfo info(path_of(one.address), af::FileType::File);
  info.set_size(static_cast<int64_t>(one.size));
  const auto got = request(one.address, [&](auto& store) -> arrow::Result<int64_t> {
    ARROW_ASSIGN_OR_RAISE(const auto file, store.OpenInputFile(info));
    return file->ReadAt(static_cast<int64_t>(offset), static_cast<int64_t>(to.size()),
                        to.data());
  });
  if (!got.ok() && does_not_fit(got.status())) {
    const arrow::Status why = reason(one.address, got.status());
    if (why.ok() || does_not_fit(why)) return false;
    return why;
  }
  if (!got.ok()) return got.status();
  return static_cast<uint64_t>(*got) == to.size() && tail.back() != last;
}

/// Asks for a range. If its last byte still has the value that was set beforehand, which
/// may be its true value, asks for the last bytes once more. Returns whether all bytes
/// came.
arrow::Result<bool> S3Requests::read_proved(const ObjectInfo& one, uint64_t offset,
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

void S3Requests::read_range(const ObjectInfo& one, uint64_t offset,
                            std::span<std::byte> to) {
  const WorkBegan now;
  with_patience(
      [&] {
        const auto whole = read_proved(one, offset, to);
        check(whole.status(), one.address, "read");
        if (*whole) return;
        fail_temporary(
            "objects",
            "{}: the store gave other than the {} bytes that were asked for at byte {}, "
            "again and again for {:.0f} seconds; start again later",
            one.address.text(), to.size(), offset, patience->seconds);
      },
      WorkBegan::time(), /*once_more=*/false);
  bytes_read += to.size();
}

/// Reads an object whole, in order.
template <typename Take>
void S3Requests::read_whole(const ObjectInfo& one, Take take) {
  std::vector<std::byte> bytes;
  for (uint64_t begin = 0; begin < one.size; begin += kWholeBytes) {
    bytes.resize(std::min(kWholeBytes, one.size - begin));
    read_range(one, begin, bytes);
    take(std::span<const std::byte>(bytes));
  }
}

std::string S3Requests::hash_of(const Address& address, uint64_t size) {
  const std::optional<ObjectInfo> one = look(address);
  if (!one || one->size != size) return {};
  BlockHasher hasher;
  read_whole(*one, [&](std::span<const std::byte> bytes) { hasher.update(bytes); });
  return combine_hashes(hasher.finish());
}

std::optional<EtagProof> S3Requests::proof_of(const ObjectInfo& one) {
  EtagProof proof(one.version, one.size);
  const std::lock_guard lock(mutex_);
  if (!proof.compares() || other_etags_[proof.is_plain()].contains(one.address.bucket)) {
    return std::nullopt;
  }
  return proof;
}

/// Returns the smallest objects in the directory of `one` whose ETags look like MD5s.
std::vector<ObjectInfo> S3Requests::small_ones_beside(const ObjectInfo& one) {
  const size_t slash = one.address.key.rfind('/');
  const Address dir{one.address.bucket,
                    slash == std::string::npos ? "" : one.address.key.substr(0, slash)};
  std::vector<af::FileInfo> found = list(dir, /*deep=*/false);
  std::erase_if(found, [&](const af::FileInfo& file) {
    return !file.IsFile() || file.size() == 0 || file.size() > kLargestBeside ||
           file.path() == path_of(one.address);
  });
  std::ranges::sort(found, {}, &af::FileInfo::size);
  std::vector<ObjectInfo> objects;
  for (const af::FileInfo& file : found) {
    if (objects.size() == kMostBeside) break;
    const Address address{dir.bucket, file.path().substr(dir.bucket.size() + 1)};
    std::optional<ObjectInfo> object;
    if (is_path(address.key)) object = look(address);
    if (!object) continue;
    const EtagProof proof(object->version, object->size);
    if (proof.compares() && proof.is_plain()) objects.push_back(*std::move(object));
  }
  return objects;
}

/// Returns whether there are objects beside `one` and no ETag of theirs is the MD5 of its
/// own object's bytes, or `digest`, the MD5 of the bytes of `one`.
bool S3Requests::none_beside_fits(const ObjectInfo& one, const std::string& digest) {
  std::vector<ObjectInfo> beside;
  try {
    beside = small_ones_beside(one);
  } catch (const InputError&) {
    // The right to read an object does not include the right to list others.
    return false;
  }
  return !beside.empty() && std::ranges::none_of(beside, [&](const ObjectInfo& object) {
    EtagProof proof(object.version, object.size);
    read_whole(object, [&](std::span<const std::byte> bytes) { proof.update(bytes); });
    return proof.fits() || trimmed(object.version, "\"") == digest;
  });
}

void S3Requests::note_other_etag(const ObjectInfo& one, const EtagProof& proof) {
  const std::string& bucket = one.address.bucket;
  const std::lock_guard deciding(deciding_);
  if (!proof_of(one)) return;  // a second thread has found the proof meanwhile
  if (proof.is_plain()) {
    const std::optional<bool> others = aws_settings().has_other_etags;
    if (!others.value_or(true) || (!others && !none_beside_fits(one, proof.digest()))) {
      fail_input(
          "objects",
          "{}: its bytes have come twice alike, with the MD5 {}, and its ETag is {}: the "
          "store, or a cache before it, gives the bytes of another object. Look at the "
          "store. If its ETags are no MD5s, set LONGHAUL_OBJECTS_ETAGS=opaque",
          one.address.text(), proof.digest(), one.version);
    }
    if (!others) {
      fmt::print(
          stderr,
          "longhaul: warning: [objects] s3://{}: its ETags are no MD5s, neither of "
          "{} nor of others beside it: bytes are not compared with them\n",
          bucket, system::printable(one.address.text()));
    }
  }
  const std::lock_guard lock(mutex_);
  other_etags_[proof.is_plain()].insert(bucket);
}

bool S3Requests::came_right(const ObjectInfo& one, const std::string& digest) {
  std::optional<EtagProof> proof = proof_of(one);
  if (!proof) return true;
  read_whole(one, [&](std::span<const std::byte> bytes) { proof->update(bytes); });
  if (proof->fits()) return proof->digest() == digest;
  if (proof->digest() != digest) return false;
  note_other_etag(one, *proof);
  return true;
}

}  // namespace longhaul::objects
