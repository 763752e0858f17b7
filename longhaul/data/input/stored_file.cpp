#include "longhaul/data/input/stored_file.h"

#include <fcntl.h>
#include <fmt/format.h>
// The inlined xxhash uses the instructions that this build is compiled for.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/data/input/file_kinds.h"

namespace longhaul::data {

struct StoredFile::Hash {
  XXH3_state_t* xxh = XXH3_createState();
  Hash() { XXH3_128bits_reset(xxh); }
  ~Hash() { XXH3_freeState(xxh); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
};

namespace {

std::unique_ptr<ObjectReader> open_object(const InputFile& file, uint64_t ahead_end) {
  // The readers of Parquet and Arrow know where their bytes lie, and read them in any
  // order.
  const auto use = has_columns(file.format) ? ObjectReader::Use::AnyOrder
                                            : ObjectReader::Use::FrontToBack;
  return std::make_unique<ObjectReader>(file.object, use, ahead_end);
}

}  // namespace

StoredFile::StoredFile(const InputFile& file, uint64_t hash_begin, uint64_t hash_end)
    : path_(file.path),
      file_(file.object ? File() : File::open_read(file.path)),
      object_(file.object ? open_object(file, hash_end) : nullptr),
      size_(file.object ? file.object->info.size : file_.size()),
      compression_(file.compression),
      hash_begin_(hash_begin),
      hash_end_(hash_end),
      hash_(std::make_unique<Hash>()) {
  if (size_ != file.stored_bytes) {
    fail_input("data",
               "{}: has {} bytes now, but had {} when this command began; start again "
               "when no program writes to the inputs any more",
               path().string(), size_, file.stored_bytes);
  }
  if (!object_) ::posix_fadvise(file_.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
}
StoredFile::~StoredFile() = default;

void StoredFile::begin(uint64_t offset) {
  if (object_) object_->begin(offset);
}

std::span<const char> StoredFile::read(uint64_t offset, std::span<char> to) {
  if (offset >= size_) return {};
  const auto count = static_cast<size_t>(std::min<uint64_t>(to.size(), size_ - offset));
  const std::span<char> part = to.first(count);
  read_at(offset, part);
  offset_ = offset + count;
  const uint64_t begin = std::clamp(hash_begin_, offset, offset_);
  const uint64_t end = std::clamp(hash_end_, begin, offset_);
  hash_more(part.subspan(static_cast<size_t>(begin - offset),
                         static_cast<size_t>(end - begin)));
  return part;
}

void StoredFile::read_at(uint64_t offset, std::span<char> to) const {
  if (object_) {
    object_->read(offset, std::as_writable_bytes(to));
  } else {
    file_.read_at(offset, std::as_writable_bytes(to));
  }
}

void StoredFile::hash_more(std::span<const char> bytes) {
  XXH3_128bits_update(hash_->xxh, bytes.data(), bytes.size());
  hashed_ += bytes.size();
}

std::string StoredFile::hash() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(hash_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void StoredFile::fail(std::string_view what, uint64_t offset,
                      std::string_view action) const {
  fail_input("data", "{}: {} at byte {} of {}; {}", path().string(), what, offset, size_,
             action.empty() ? "copy or download the file again" : action);
}

}  // namespace longhaul::data
