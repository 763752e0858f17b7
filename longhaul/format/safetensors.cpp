#include "longhaul/format/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <tuple>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"

namespace longhaul::format {
namespace {

// No model has as many dims and tensors. The limits bound the cost of a hostile header.
constexpr size_t kMaxRank = 16;
constexpr size_t kMaxTensors = 1'000'000;
constexpr int kHeaderDepth = 4;  // object, tensor, array, number

constexpr const char* kFetchAgain = "copy or download it again";

template <class... Args>
[[noreturn]] void fail(const std::string& what, fmt::format_string<Args...> problem,
                       Args&&... args) {
  fail_input("safetensors", "{}: {}", what,
             fmt::format(problem, std::forward<Args>(args)...));
}

/// Returns what a file is that is not safetensors, by its first eight bytes.
std::string other_kind(std::string_view prefix) {
  if (prefix.starts_with("version ")) {
    return "a Git LFS pointer, not the file itself: run `git lfs pull` there, or "
           "download it again";
  }
  if (prefix.starts_with('<')) {
    return "a web page, not the file itself: download it again";
  }
  return "not a safetensors file";
}

uint64_t read_header_length(std::span<const std::byte> prefix, uint64_t file_size,
                            const std::string& what) {
  if (file_size < 8 || prefix.size() < 8) {
    fail(what,
         "{} bytes, but the length of the header alone takes 8; the file is truncated or "
         "not a safetensors file; {}",
         file_size, kFetchAgain);
  }
  uint64_t length = 0;
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(&length, prefix.data(), 8);
  if (length > kMaxSafetensorsHeader) {
    fail(what, "{} (byte 0: the header length is {}, more than the limit of {})",
         other_kind({reinterpret_cast<const char*>(prefix.data()), 8}), length,
         kMaxSafetensorsHeader);
  }
  if (length > file_size - 8) {
    fail(what,
         "byte 0: the header length is {}, but the file ends {} bytes after it; the file "
         "is truncated: {}",
         length, file_size - 8, kFetchAgain);
  }
  if (length < 2) fail(what, "byte 0: the header length is {}", length);
  return length;
}

uint64_t unsigned_field(const Json& value, const std::string& what,
                        const std::string& name, const char* field) {
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    fail(what, "tensor '{}': {} holds {}, not a whole number from 0 to 2^63-1", name,
         field, json_text(value).substr(0, 40));
  }
  return value.get<uint64_t>();
}

SafetensorsEntry parse_entry(const std::string& name, const Json& json,
                             const std::string& what) {
  SafetensorsEntry entry;
  entry.name = name;
  if (!json.is_object()) fail(what, "tensor '{}': not an object", name);
  for (const auto& [key, unused] : json.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      fail(what, "tensor '{}': unknown field '{}'", name, key);
    }
  }
  const auto field = [&](const char* key) -> const Json& {
    const auto found = json.find(key);
    if (found == json.end()) fail(what, "tensor '{}': no '{}'", name, key);
    return *found;
  };
  const Json& dtype = field("dtype");
  if (!dtype.is_string()) fail(what, "tensor '{}': dtype is no string", name);
  const auto known = dtype_from_name(dtype.get<std::string>());
  if (!known) {
    fail(what,
         "tensor '{}': unknown dtype '{}'; known are F64, F32, F16, BF16, I64 ... U8, "
         "BOOL",
         name, dtype.get<std::string>());
  }
  entry.dtype = *known;
  const Json& shape = field("shape");
  if (!shape.is_array() || shape.size() > kMaxRank) {
    fail(what, "tensor '{}': shape is not a list of at most {} numbers", name, kMaxRank);
  }
  for (const Json& extent : shape) {
    entry.shape.push_back(
        static_cast<int64_t>(unsigned_field(extent, what, name, "shape")));
  }
  const Json& offsets = field("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    fail(what, "tensor '{}': data_offsets is not [begin, end]", name);
  }
  entry.begin = unsigned_field(offsets[0], what, name, "data_offsets");
  entry.end = unsigned_field(offsets[1], what, name, "data_offsets");
  if (entry.begin > entry.end) {
    fail(what, "tensor '{}': data_offsets [{}, {}] run backwards", name, entry.begin,
         entry.end);
  }
  uint64_t bytes = 0;
  if (!tensor_bytes(entry.shape, entry.dtype, &bytes)) {
    fail(what, "tensor '{}': shape {} has more than 2^63 bytes", name,
         describe_shape(entry.shape));
  }
  if (bytes != entry.end - entry.begin) {
    fail(what,
         "tensor '{}': shape {} of {} takes {} bytes, but data_offsets [{}, {}] give it "
         "{}",
         name, describe_shape(entry.shape), dtype_name(entry.dtype), bytes, entry.begin,
         entry.end, entry.end - entry.begin);
  }
  return entry;
}

void parse_metadata(const Json& json, const std::string& what,
                    SafetensorsHeader& header) {
  if (!json.is_object()) fail(what, "__metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) fail(what, "__metadata__ '{}' is no string", key);
    header.metadata[key] = value.get<std::string>();
  }
}

// Throws InputError if the file ends before its last tensor does. The message has the
// size that the file should have, which shows that a download was broken off.
void check_whole(const SafetensorsHeader& header, uint64_t file_size,
                 const std::string& what) {
  const auto last = std::ranges::max_element(header.entries, {}, &SafetensorsEntry::end);
  if (last == header.entries.end()) return;
  // Both numbers are below 2^63.
  const uint64_t wanted = header.data_start + last->end;
  if (wanted <= file_size) return;
  fail(what,
       "tensor '{}': its data ends at byte {}, but the file ends at byte {}; the file is "
       "truncated: {} of {} are there; {}",
       last->name, wanted, file_size, human_bytes(file_size), human_bytes(wanted),
       kFetchAgain);
}

// Checks that each tensor, sorted by begin, starts where the one before ends.
void check_cover(const SafetensorsHeader& header, uint64_t data_size,
                 const std::string& what) {
  uint64_t position = 0;
  const SafetensorsEntry* before = nullptr;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin < position) {
      fail(what, "tensors '{}' and '{}' overlap: byte {} belongs to both", before->name,
           entry.name, header.data_start + entry.begin);
    }
    if (entry.begin > position) {
      fail(what, "bytes {} to {} before tensor '{}' belong to no tensor",
           header.data_start + position, header.data_start + entry.begin, entry.name);
    }
    position = entry.end;
    before = &entry;
  }
  if (position != data_size) {
    fail(what, "{} bytes after the last tensor, from byte {}, belong to no tensor",
         data_size - position, header.data_start + position);
  }
}

}  // namespace

bool tensor_bytes(const std::vector<int64_t>& shape, DType dtype, uint64_t* bytes) {
  auto total = static_cast<int64_t>(dtype_size(dtype));
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(total, extent, &total)) return false;
  }
  *bytes = static_cast<uint64_t>(total);
  return true;
}

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  for (const SafetensorsEntry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> prefix,
                                           uint64_t file_size, const std::string& what) {
  const uint64_t length = read_header_length(prefix, file_size, what);
  LH_CHECK(prefix.size() - 8 >= length, "safetensors", "{}: prefix of {} bytes", what,
           prefix.size());
  const std::string_view text(reinterpret_cast<const char*>(prefix.data()) + 8, length);
  if (text.front() != '{') fail(what, "byte 8: the header does not start with '{{'");
  const Json json = parse_json(text, what + " (header from byte 8)", kHeaderDepth);
  if (json.size() > kMaxTensors) {
    fail(what, "{} tensors, more than the limit of {}", json.size(), kMaxTensors);
  }
  SafetensorsHeader header;
  header.data_start = 8 + length;
  const uint64_t data_size = file_size - header.data_start;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      parse_metadata(value, what, header);
    } else {
      header.entries.push_back(parse_entry(name, value, what));
    }
  }
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
            });
  check_whole(header, file_size, what);
  check_cover(header, data_size, what);
  return header;
}

SafetensorsFile SafetensorsFile::open(const fs::path& path) {
  SafetensorsFile result;
  if (fs::is_directory(path)) {
    fail_input("safetensors", "{}: is a directory, not a file", path.string());
  }
  result.file_ = File::open_read(path);
  result.size_ = result.file_.size();
  std::vector<std::byte> prefix(std::min<uint64_t>(result.size_, 8));
  result.file_.read_at(0, prefix);
  if (prefix.size() == 8) {
    const uint64_t length = read_header_length(prefix, result.size_, path.string());
    prefix.resize(8 + length);
    result.file_.read_at(8, std::span(prefix).subspan(8));
  }
  result.header_ = parse_safetensors_header(prefix, result.size_, path.string());
  return result;
}

void SafetensorsFile::read(const SafetensorsEntry& entry, uint64_t offset,
                           std::span<std::byte> bytes) const {
  LH_CHECK(offset <= entry.end - entry.begin &&
               bytes.size() <= entry.end - entry.begin - offset,
           "safetensors", "'{}': {} bytes at {} of {}", entry.name, bytes.size(), offset,
           entry.end - entry.begin);
  file_.read_at(header_.data_start + entry.begin + offset, bytes);
}

void SafetensorsFile::read_data(uint64_t offset, std::span<std::byte> bytes) const {
  file_.read_at(header_.data_start + offset, bytes);
}

void SafetensorsFile::will_read(uint64_t offset, uint64_t bytes) const {
  ::posix_fadvise(file_.fd(), static_cast<off_t>(header_.data_start + offset),
                  static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

void SafetensorsPlan::add(std::string name, DType dtype, std::vector<int64_t> shape) {
  SafetensorsEntry entry;
  entry.name = std::move(name);
  entry.dtype = dtype;
  entry.shape = std::move(shape);
  uint64_t bytes = 0;
  LH_CHECK(tensor_bytes(entry.shape, dtype, &bytes), "safetensors", "'{}': shape {}",
           entry.name, describe_shape(entry.shape));
  entry.begin = entries.empty() ? 0 : entries.back().end;
  entry.end = entry.begin + bytes;
  entries.push_back(std::move(entry));
}

std::string SafetensorsPlan::header_bytes(
    const std::map<std::string, std::string>& metadata) const {
  OrderedJson json = OrderedJson::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  std::set<std::string> names;
  for (const SafetensorsEntry& entry : entries) {
    LH_CHECK(names.insert(entry.name).second, "safetensors", "'{}' is added twice",
             entry.name);
    // push_back keeps this linear, since operator[] of an ordered object searches.
    json.get_ref<OrderedJson::object_t&>().push_back(
        {entry.name,
         {{"dtype", dtype_name(entry.dtype)},
          {"shape", entry.shape},
          {"data_offsets", {entry.begin, entry.end}}}});
  }
  std::string text = json_text(json);
  text.append((8 - text.size() % 8) % 8, ' ');
  LH_CHECK(text.size() <= kMaxSafetensorsHeader, "safetensors", "header of {} bytes",
           text.size());
  const uint64_t length = text.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + text;
}

namespace {
// The size of a write, small enough to be still in the cache when it is hashed.
constexpr size_t kWriteBytes = size_t{1} << 20;
// Writing to the device begins early, so that the device works while the rest is written.
constexpr uint64_t kFlushBytes = uint64_t{32} << 20;
}  // namespace

SafetensorsWriter::SafetensorsWriter(const fs::path& path, const SafetensorsPlan& plan)
    : file_(File::create(path)) {
  const std::string header = plan.header_bytes();
  header_size_ = header.size();
  planned_ = plan.entries.empty() ? 0 : plan.entries.back().end;
  file_.write(header);
  hasher_.update(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  LH_CHECK(bytes.size() <= planned_ - written_, "safetensors",
           "{}: {} bytes after {} of {} planned", file_.path().string(), bytes.size(),
           written_, planned_);
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min<size_t>(bytes.size(), kWriteBytes));
    file_.write(part);
    hasher_.update(part);
    written_ += part.size();
    bytes = bytes.subspan(part.size());
    const uint64_t end = header_size_ + written_;
    if (end - flushed_ < kFlushBytes) continue;
    file_.start_writeback(flushed_, end - flushed_);
    flushed_ = end;
  }
}

std::vector<std::string> SafetensorsWriter::finish() {
  LH_CHECK(written_ == planned_, "safetensors", "{}: {} of {} bytes written",
           file_.path().string(), written_, planned_);
  file_.sync();
  file_.close();
  return hasher_.finish();
}

}  // namespace longhaul::format
