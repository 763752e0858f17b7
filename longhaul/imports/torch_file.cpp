#include "longhaul/imports/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

#include "longhaul/base/crc.h"
#include "longhaul/base/error.h"
#include "longhaul/imports/pickle/zip_reader.h"

namespace longhaul::imports {
namespace {

using Bytes = std::span<const std::byte>;

// The magic number at the start of the stream form, in the bytes that a pickle has for
// it.
constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr int64_t kStreamVersion = 1001;

template <class... Args>
[[noreturn]] void fail(const std::string& what, fmt::format_string<Args...> problem,
                       Args&&... args) {
  fail_input("torch file", "{}: {}", what,
             fmt::format(problem, std::forward<Args>(args)...));
}

bool starts_with(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() &&
         std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void check_size(const PickleStorage& storage, uint64_t found, const std::string& what) {
  if (storage.bytes() == found) return;
  fail(what, "storage '{:.40}' should have {} bytes, but has {} in the file", storage.key,
       storage.bytes(), found);
}

class ZipForm {
 public:
  ZipForm(Bytes bytes, const std::string& what) : bytes_(bytes), what_(what) {
    for (ZipEntry& entry : read_zip(bytes, what)) {
      if (entry.name.ends_with("/data.pkl")) {
        if (!prefix_.empty()) fail(what, "two files named data.pkl");
        prefix_ = entry.name.substr(0, entry.name.size() - 8);
      }
      entries_.emplace(entry.name, entry);
    }
    if (prefix_.empty()) {
      fail(what, "a zip archive without data.pkl, so torch.save did not write it");
    }
    if (entries_.contains(prefix_ + "constants.pkl")) {
      fail(what, "a TorchScript program; save its state dict instead");
    }
  }

  PickleTree read(uint64_t base, const PickleLimits& limits) const {
    const auto order = entries_.find(prefix_ + "byteorder");
    if (order != entries_.end() && text_of(bytes(order->second)) != "little") {
      fail(what_, "written by a big-endian machine; load and save it on another one");
    }
    const ZipEntry& pickle = entries_.at(prefix_ + "data.pkl");
    if (pickle.crc != 0 && crc_of<kCrc32>(bytes(pickle)) != pickle.crc) {
      fail(what_,
           "byte {}: the checksum of data.pkl is wrong; the file is damaged, copy it "
           "again",
           pickle.begin);
    }
    uint64_t consumed = 0;
    PickleTree tree =
        parse_pickle(bytes(pickle), what_ + ": data.pkl", &consumed, limits);
    for (PickleStorage& storage : tree.storages) {
      const auto entry = entries_.find(prefix_ + "data/" + storage.key);
      if (entry == entries_.end()) {
        fail(what_, "no data of storage '{:.40}'", storage.key);
      }
      check_size(storage, entry->second.size, what_);
      storage.begin = base + entry->second.begin;
    }
    return tree;
  }

 private:
  Bytes bytes(const ZipEntry& entry) const {
    return bytes_.subspan(static_cast<size_t>(entry.begin),
                          static_cast<size_t>(entry.size));
  }

  Bytes bytes_;
  const std::string& what_;
  std::string prefix_;
  std::map<std::string, ZipEntry> entries_;
};

// The older form: pickles of magic, version, machine, the object and the list of
// storages, then for each storage its number of elements and its bytes.
class StreamForm {
 public:
  StreamForm(Bytes bytes, const std::string& what, const PickleLimits& limits)
      : bytes_(bytes), what_(what), limits_(limits) {}

  PickleTree read(uint64_t base) {
    const PickleTree magic = next();
    if (!magic.is(magic.root, PickleKind::BigInt) || magic.text(magic.root) != kMagic) {
      fail(what_, "does not begin as torch.save writes it");
    }
    const PickleTree version = next();
    if (version.as_int(version.root) != kStreamVersion) {
      fail(what_, "stream version {}", version.describe(version.root));
    }
    const PickleTree machine = next();
    const auto little = machine.find(machine.root, "little_endian");
    if (!little || !machine.is(*little, PickleKind::Bool) ||
        machine.integer(*little) == 0) {
      fail(what_, "written by a big-endian machine; load and save it on another one");
    }
    PickleTree tree = next();
    place_storages(tree, next(), base);
    return tree;
  }

 private:
  PickleTree next() {
    uint64_t consumed = 0;
    PickleTree tree = parse_pickle(bytes_.subspan(position_), what_, &consumed, limits_);
    position_ += static_cast<size_t>(consumed);
    return tree;
  }

  void place_storages(PickleTree& tree, const PickleTree& keys, uint64_t base) {
    if (!keys.is(keys.root, PickleKind::List)) fail(what_, "no list of storages");
    std::unordered_map<std::string, PickleStorage*> open;
    for (PickleStorage& storage : tree.storages) open[storage.key] = &storage;
    for (const auto ref : keys.items(keys.root)) {
      const auto key = keys.as_text(ref);
      const auto found = key ? open.find(std::string(*key)) : open.end();
      if (found == open.end()) fail(what_, "data of a storage that nothing refers to");
      PickleStorage& storage = *found->second;
      open.erase(found);
      const uint64_t left = bytes_.size() - position_;
      uint64_t count = 0;
      if (left < sizeof count) fail(what_, "it ends before its last storage");
      std::memcpy(&count, bytes_.data() + position_, sizeof count);
      position_ += sizeof count;
      const uint64_t width = storage.dtype ? format::dtype_size(*storage.dtype) : 1;
      if (count > (uint64_t{1} << 62) / width) fail(what_, "a storage of 2^62 bytes");
      check_size(storage, count * width, what_);
      if (storage.bytes() > bytes_.size() - position_) {
        fail(what_,
             "byte {}: storage '{:.40}' of {} bytes, but {} are left; the file is "
             "truncated",
             position_, storage.key, storage.bytes(), bytes_.size() - position_);
      }
      storage.begin = base + position_;
      position_ += static_cast<size_t>(storage.bytes());
    }
    if (!open.empty()) fail(what_, "no data of storage '{:.40}'", open.begin()->first);
  }

  Bytes bytes_;
  const std::string& what_;
  const PickleLimits& limits_;
  size_t position_ = 0;
};

}  // namespace

bool looks_like_torch_file(std::span<const std::byte> bytes) {
  if (starts_with(bytes, "PK\x03\x04")) return true;
  // The stream form begins with a pickle of protocol 2 to 5 that holds the magic number.
  // Protocols 4 and 5 put a frame around it.
  if (bytes.size() < 2 || bytes[0] != std::byte{0x80} || bytes[1] < std::byte{2} ||
      bytes[1] > std::byte{5}) {
    return false;
  }
  constexpr size_t kFrame = 9;
  bytes = bytes.subspan(2);
  if (starts_with(bytes, "\x95")) bytes = bytes.subspan(std::min(kFrame, bytes.size()));
  return starts_with(bytes, "\x8a\x0a" + std::string(kMagic));
}

PickleTree read_torch_file(std::span<const std::byte> bytes, uint64_t base,
                           const std::string& what, const PickleLimits& limits) {
  if (starts_with(bytes, "PK\x03\x04")) return ZipForm(bytes, what).read(base, limits);
  if (bytes.empty()) fail(what, "an empty file");
  if (starts_with(bytes, "version https://git-lfs")) {
    fail(what, "a Git LFS pointer instead of the file itself; run `git lfs pull`");
  }
  if (!looks_like_torch_file(bytes)) {
    fail(what,
         "neither a zip archive nor a stream as torch.save writes them; it may be "
         "truncated or of another program");
  }
  return StreamForm(bytes, what, limits).read(base);
}

}  // namespace longhaul::imports
