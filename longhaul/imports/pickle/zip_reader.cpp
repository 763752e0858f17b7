#include "longhaul/imports/pickle/zip_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "longhaul/base/error.h"

namespace longhaul::imports {
namespace {

constexpr uint64_t kEndSize = 22;
constexpr uint64_t kLocatorSize = 20;
constexpr uint64_t kEnd64Size = 56;
constexpr uint64_t kEntrySize = 46;
constexpr uint64_t kLocalSize = 30;
constexpr uint64_t kMaxComment = 65535;
constexpr uint64_t kMaxDirectory = uint64_t{1} << 28;
constexpr uint64_t kMaxEntries = 1'000'000;

struct End {
  uint64_t entries = 0;
  uint64_t size = 0;
  uint64_t offset = 0;
  uint64_t limit = 0;  // where the end records begin
};

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

class Archive {
 public:
  Archive(std::span<const std::byte> file, const std::string& what)
      : file_(file), what_(what) {}

  std::vector<ZipEntry> entries() {
    const End end = find_end();
    const auto directory = bytes(end.offset, end.size);
    struct Placed {
      ZipEntry entry;
      uint64_t header = 0;
    };
    std::vector<Placed> placed;
    std::set<std::string> names;
    uint64_t at = 0;
    for (uint64_t i = 0; i < end.entries; ++i) {
      Placed next;
      at = read_entry(directory, at, end.offset, next.entry, next.header);
      check_name(next.entry.name, end.offset);
      if (!names.insert(next.entry.name).second) {
        fail(end.offset, "'{:.80}' comes twice", next.entry.name);
      }
      next.entry.begin = data_start(next.header, next.entry, end.offset);
      placed.push_back(std::move(next));
    }
    if (at != directory.size()) fail(end.offset + at, "bytes after the last entry");
    std::sort(placed.begin(), placed.end(),
              [](const Placed& a, const Placed& b) { return a.header < b.header; });
    std::vector<ZipEntry> entries;
    uint64_t position = 0;
    for (Placed& next : placed) {
      if (next.header < position) {
        fail(next.header, "the entry '{:.80}' overlaps another", next.entry.name);
      }
      position = next.entry.begin + next.entry.size;
      entries.push_back(std::move(next.entry));
    }
    return entries;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(uint64_t offset, fmt::format_string<Args...> problem,
                         Args&&... args) const {
    fail_input(
        "zip",
        "{}: byte {}: {}; the file is damaged or not a zip archive as torch writes them",
        what_, offset, fmt::format(problem, std::forward<Args>(args)...));
  }

  std::span<const std::byte> bytes(uint64_t offset, uint64_t count) const {
    if (offset > file_.size() || count > file_.size() - offset) {
      fail(offset, "{} bytes past the end", count);
    }
    return file_.subspan(static_cast<size_t>(offset), static_cast<size_t>(count));
  }

  End find_end() const {
    if (file_.size() < kEndSize) fail(0, "no directory at its end; it may be truncated");
    const uint64_t tail = std::min<uint64_t>(file_.size(), kEndSize + kMaxComment);
    const uint64_t start = file_.size() - tail;
    const auto text = bytes(start, tail);
    for (uint64_t i = tail - kEndSize + 1; i-- > 0;) {
      if (load<uint32_t>(&text[i]) != 0x06054b50 ||
          load<uint16_t>(&text[i + 20]) != tail - kEndSize - i) {
        continue;
      }
      End end;
      end.entries = load<uint16_t>(&text[i + 10]);
      end.size = load<uint32_t>(&text[i + 12]);
      end.offset = load<uint32_t>(&text[i + 16]);
      end.limit = start + i;
      if (load<uint16_t>(&text[i + 4]) != 0)
        fail(end.limit, "an archive of several parts");
      read_end64(end);
      if (end.entries > kMaxEntries || end.size > kMaxDirectory ||
          end.offset > end.limit || end.size > end.limit - end.offset) {
        fail(end.limit, "a directory of {} entries and {} bytes at {}", end.entries,
             end.size, end.offset);
      }
      return end;
    }
    fail(start, "no directory at its end; it may be truncated");
  }

  // Reads the second end record that larger archives have. A locator before the first end
  // record points to it.
  void read_end64(End& end) const {
    if (end.limit < kLocatorSize) return;
    const auto locator = bytes(end.limit - kLocatorSize, kLocatorSize);
    if (load<uint32_t>(locator.data()) != 0x07064b50) return;
    const auto at = load<uint64_t>(&locator[8]);
    const auto record = bytes(at, kEnd64Size);
    if (load<uint32_t>(record.data()) != 0x06064b50) fail(at, "no zip64 end record");
    end.entries = load<uint64_t>(&record[32]);
    end.size = load<uint64_t>(&record[40]);
    end.offset = load<uint64_t>(&record[48]);
    end.limit = at;
  }

  uint64_t read_entry(std::span<const std::byte> directory, uint64_t at, uint64_t base,
                      ZipEntry& entry, uint64_t& header) const {
    const uint64_t where = base + at;
    if (directory.size() - at < kEntrySize) fail(where, "the directory is truncated");
    const std::byte* record = directory.data() + at;
    if (load<uint32_t>(record) != 0x02014b50) fail(where, "no directory entry");
    const uint64_t name = load<uint16_t>(record + 28);
    const uint64_t extra = load<uint16_t>(record + 30);
    const uint64_t comment = load<uint16_t>(record + 32);
    if (directory.size() - at - kEntrySize < name + extra + comment) {
      fail(where, "the directory is truncated");
    }
    entry.name.assign(reinterpret_cast<const char*>(record) + kEntrySize, name);
    if ((load<uint16_t>(record + 8) & 0x2041U) != 0) {
      fail(where, "'{:.80}' is encrypted", entry.name);
    }
    if (load<uint16_t>(record + 10) != 0) {
      fail(where, "'{:.80}' is compressed", entry.name);
    }
    entry.crc = load<uint32_t>(record + 16);
    uint64_t packed = load<uint32_t>(record + 20);
    entry.size = load<uint32_t>(record + 24);
    header = load<uint32_t>(record + 42);
    read_extra({record + kEntrySize + name, extra}, where, entry.size, packed, header);
    if (packed != entry.size) {
      fail(where, "'{:.80}' is stored in {} bytes, but has {}", entry.name, packed,
           entry.size);
    }
    return at + kEntrySize + name + extra + comment;
  }

  // Reads the zip64 field. It holds `size`, `packed` and `header`, in this order, but
  // only those of them that do not fit 32 bits.
  void read_extra(std::span<const std::byte> extra, uint64_t where, uint64_t& size,
                  uint64_t& packed, uint64_t& header) const {
    while (extra.size() >= 4) {
      const auto id = load<uint16_t>(extra.data());
      const auto length = load<uint16_t>(extra.data() + 2);
      if (length > extra.size() - 4) fail(where, "an extra field past its end");
      if (id == 1) {
        auto field = extra.subspan(4, length);
        for (uint64_t* value : {&size, &packed, &header}) {
          if (*value != 0xFFFFFFFFU) continue;
          if (field.size() < 8) fail(where, "a zip64 field that is too short");
          *value = load<uint64_t>(field.data());
          field = field.subspan(8);
        }
      }
      extra = extra.subspan(4 + size_t{length});
    }
  }

  void check_name(const std::string& name, uint64_t where) const {
    bool good = !name.empty() && name.front() != '/' &&
                name.find_first_of(std::string_view("\\\0", 2)) == std::string::npos;
    for (size_t begin = 0; good && begin <= name.size();) {
      const size_t end = std::min(name.find('/', begin), name.size());
      good = name.substr(begin, end - begin) != "..";
      begin = end + 1;
    }
    if (!good) fail(where, "the name '{:.80}' leaves the archive", name);
  }

  uint64_t data_start(uint64_t header, const ZipEntry& entry, uint64_t limit) const {
    if (header > limit || limit - header < kLocalSize) {
      fail(header, "the entry '{:.80}' lies outside of the file", entry.name);
    }
    const auto record = bytes(header, kLocalSize);
    const uint64_t name = load<uint16_t>(&record[26]);
    const uint64_t extra = load<uint16_t>(&record[28]);
    if (load<uint32_t>(record.data()) != 0x04034b50 || name != entry.name.size() ||
        limit - header - kLocalSize < name + extra || load<uint16_t>(&record[8]) != 0) {
      fail(header, "no header of '{:.80}' here", entry.name);
    }
    const auto text = bytes(header + kLocalSize, name);
    if (std::memcmp(text.data(), entry.name.data(), name) != 0) {
      fail(header, "the header of '{:.80}' names another file", entry.name);
    }
    const uint64_t begin = header + kLocalSize + name + extra;
    if (entry.size > limit - begin) {
      fail(header, "the entry '{:.80}' of {} bytes does not fit the file", entry.name,
           entry.size);
    }
    return begin;
  }

  std::span<const std::byte> file_;
  const std::string& what_;
};

}  // namespace

std::vector<ZipEntry> read_zip(std::span<const std::byte> file, const std::string& what) {
  return Archive(file, what).entries();
}

}  // namespace longhaul::imports
