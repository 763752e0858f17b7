#include "longhaul/data/store/build/build_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"

namespace longhaul::data {
namespace {

/// Bytes of memory for each hash of a set at the peak, while the table grows.
constexpr uint64_t kBytesPerHash = 96;
constexpr size_t kReadHashes = size_t{1} << 16;

/// A record and the hash of its document, in the form that a Bucket stores.
struct Place {
  ContentHash hash;
  uint64_t part = 0;
  uint64_t record = 0;
};
static_assert(sizeof(Place) == 32 && sizeof(ContentHash) == 16);

/// A set of hashes other than 0, which is a growing table with open addressing.
class HashSet {
 public:
  HashSet() : slots_(1024) {}
  /// Returns false when the set has the hash already.
  bool insert(const ContentHash& hash) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    ContentHash& slot = find(slots_, hash);
    if (slot == hash) return false;
    slot = hash;
    ++count_;
    return true;
  }

 private:
  static ContentHash& find(std::vector<ContentHash>& slots, const ContentHash& hash) {
    size_t at = hash.low & (slots.size() - 1);
    while (!(slots[at] == ContentHash{}) && !(slots[at] == hash)) {
      at = (at + 1) & (slots.size() - 1);
    }
    return slots[at];
  }
  void grow() {
    std::vector<ContentHash> larger(slots_.size() * 2);
    for (const ContentHash& hash : slots_) {
      if (!(hash == ContentHash{})) find(larger, hash) = hash;
    }
    slots_ = std::move(larger);
  }
  std::vector<ContentHash> slots_;
  size_t count_ = 0;
};

/// Calls visit(element) for each element that a file holds.
template <typename Element, typename Visit>
void read_all(const fs::path& path, Visit&& visit) {
  const File file = File::open_read(path);
  const uint64_t size = file.size();
  if (size % sizeof(Element) != 0) {
    fail_input("data",
               "{}: {} bytes are no whole number of entries; begin anew with --restart",
               path.string(), size);
  }
  std::vector<Element> buffer;
  for (uint64_t at = 0; at < size; at += buffer.size() * sizeof(Element)) {
    buffer.resize(std::min<uint64_t>(kReadHashes, (size - at) / sizeof(Element)));
    file.read_at(at, std::as_writable_bytes(std::span(buffer)));
    for (const Element& element : buffer) visit(element);
  }
}

/// A temporary file of the records in one range of hashes.
class Bucket {
 public:
  Bucket(fs::path path, size_t buffer_places)
      : path_(std::move(path)), file_(File::create(path_)), most_(buffer_places) {}
  void add(const Place& place) {
    places_.push_back(place);
    if (places_.size() >= most_) flush();
  }
  const fs::path& finish() {
    flush();
    places_ = {};
    file_.close();
    return path_;
  }

 private:
  void flush() {
    file_.write(std::as_bytes(std::span(places_)));
    places_.clear();
  }
  fs::path path_;
  File file_;
  size_t most_;
  std::vector<Place> places_;
};

class Finder {
 public:
  Finder(const BuildDirectory& directory, int parts, uint64_t memory_bytes)
      : directory_(directory), memory_bytes_(memory_bytes) {
    for (int part = 0; part < parts; ++part) {
      const uint64_t records =
          fs::file_size(directory.hashes(part)) / sizeof(ContentHash);
      bits_.emplace_back((records + 63) / 64);
      records_ += records;
    }
  }

  void run() {
    const uint64_t needed = records_ * kBytesPerHash;
    if (needed <= memory_bytes_) {
      HashSet seen;
      for_each_record([&](const Place& place) { look(seen, place); });
    } else {
      run_in_buckets(std::bit_ceil((needed + memory_bytes_ - 1) / memory_bytes_));
    }
  }

  int64_t write() const {
    int64_t count = 0;
    for (size_t part = 0; part < bits_.size(); ++part) {
      for (const uint64_t word : bits_[part]) count += std::popcount(word);
      const std::span<const std::byte> bytes = std::as_bytes(std::span(bits_[part]));
      write_text_atomic(directory_.duplicates(static_cast<int>(part)),
                        {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    return count;
  }

 private:
  template <typename Visit>
  void for_each_record(Visit&& visit) {
    for (size_t part = 0; part < bits_.size(); ++part) {
      Place place;
      place.part = part;
      read_all<ContentHash>(directory_.hashes(static_cast<int>(part)),
                            [&](const ContentHash& hash) {
                              place.hash = hash;
                              if (!(hash == ContentHash{})) visit(place);
                              ++place.record;
                            });
    }
  }

  void look(HashSet& seen, const Place& place) {
    if (seen.insert(place.hash)) return;
    bits_[place.part][place.record / 64] |= uint64_t{1} << (place.record % 64);
  }

  void run_in_buckets(uint64_t count) {
    std::vector<Bucket> buckets;
    const uint64_t buffer = memory_bytes_ / 2 / count / sizeof(Place);
    for (uint64_t i = 0; i < count; ++i) {
      buckets.emplace_back(
          directory_.duplicates_known().parent_path() / fmt::format("bucket_{:05}", i),
          std::clamp<size_t>(buffer, 64, size_t{1} << 15));
    }
    // The upper bits choose the file, the lower bits the slot in the set.
    const int shift = 64 - std::countr_zero(count);
    for_each_record(
        [&](const Place& place) { buckets[place.hash.high >> shift].add(place); });
    for (Bucket& bucket : buckets) {
      const fs::path path = bucket.finish();
      HashSet seen;
      // The file holds the records in the order of the input.
      read_all<Place>(path, [&](const Place& place) { look(seen, place); });
      fs::remove(path);
    }
  }

  const BuildDirectory& directory_;
  uint64_t memory_bytes_;
  uint64_t records_ = 0;
  std::vector<DuplicateBits> bits_;
};

}  // namespace

void hash_part(const BuildContext& context, int part, Workshop& shop, BuildMeter& meter) {
  const fs::path path = context.directory.hashes(part);
  HashedFile file(path.parent_path(), path.filename().string());
  read_part(
      context, part, shop, meter,
      [&](Piece& piece) { return context.encoder.hash(piece); },
      [&](const std::vector<ContentHash>& hashes) {
        file.write(std::as_bytes(std::span(hashes)));
        return int64_t{0};
      },
      [&](const std::vector<FinishedRange>&) {
        Json unused;
        file.finish(unused);
        sync_directory(path.parent_path());
      });
}

void find_duplicates(const BuildDirectory& directory, int parts, uint64_t memory_bytes) {
  Finder finder(directory, parts, memory_bytes);
  finder.run();
  const int64_t count = finder.write();
  write_text_atomic(directory.duplicates_known(),
                    json_text(Json{{"duplicates", count}}) + "\n");
}

DuplicateBits read_duplicates(const fs::path& path) {
  const File file = File::open_read(path);
  DuplicateBits bits(file.size() / sizeof(uint64_t));
  file.read_at(0, std::as_writable_bytes(std::span(bits)));
  return bits;
}

}  // namespace longhaul::data
