#include "longhaul/data/input/arrow_messages.h"

#include <arrow/api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "longhaul/data/input/column_rows.h"

namespace longhaul::data {
namespace {

/// The largest metadata of a message, which describe its columns and buffers without the
/// data.
constexpr uint64_t kMaxMetadataBytes = uint64_t{64} << 20;
constexpr std::string_view kMagic = "ARROW1";
constexpr uint64_t kMagicPadded = 8;
constexpr uint64_t kFileTail = 10;  // the length of the footer, and the magic

/// Reads the tables of a flatbuffer within its bounds. Arrow has verified the buffer, but
/// gives the number of rows only together with the data.
class Flatbuffer {
 public:
  explicit Flatbuffer(const arrow::Buffer& buffer)
      : data_(buffer.data()), size_(static_cast<uint64_t>(buffer.size())) {}

  template <typename Number>
  Number at(uint64_t offset) const {
    Number number{};
    if (offset <= size_ && sizeof(Number) <= size_ - offset) {
      std::memcpy(&number, data_ + offset, sizeof(number));
    }
    return number;
  }
  uint64_t root() const { return at<uint32_t>(0); }
  /// Returns the offset of a field of a table; 0 when the field is absent.
  uint64_t field(uint64_t table, uint64_t index) const {
    const uint64_t vtable = table - static_cast<uint64_t>(int64_t{at<int32_t>(table)});
    const uint64_t slot = 4 + 2 * index;
    if (slot + 2 > at<uint16_t>(vtable)) return 0;
    const uint16_t offset = at<uint16_t>(vtable + slot);
    return offset == 0 ? 0 : table + offset;
  }

 private:
  const uint8_t* data_;
  uint64_t size_;
};

/// Returns the offset of a field of the RecordBatch that a Message has as its header; 0
/// if the field is absent.
uint64_t batch_field(const Flatbuffer& buffer, uint64_t index) {
  constexpr uint64_t kHeaderField = 2;
  const uint64_t header = buffer.field(buffer.root(), kHeaderField);
  return header == 0 ? 0 : buffer.field(header + buffer.at<uint32_t>(header), index);
}

/// Returns RecordBatch.length.
int64_t batch_rows(const arrow::Buffer& metadata) {
  constexpr uint64_t kLengthField = 0;
  const Flatbuffer buffer(metadata);
  const uint64_t length = batch_field(buffer, kLengthField);
  return length == 0 ? 0 : buffer.at<int64_t>(length);
}

}  // namespace

ArrowMessages::ArrowMessages(StoredFile& file, arrow::MemoryPool* pool,
                             const InputOptions& options)
    : file_(file), pool_(pool), options_(options) {}

void ArrowMessages::read(uint64_t offset, std::span<char> to) {
  if (file_.read(offset, to).size() != to.size()) fail_truncated();
  if (hashing_) file_.hash_more(to);
}

template <typename Number>
Number ArrowMessages::read_number() {
  std::array<char, sizeof(Number)> bytes{};
  read(position_, bytes);
  position_ += bytes.size();
  Number number{};
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

void ArrowMessages::fail_truncated() const {
  file_.fail("Arrow data without the mark of its end: the file is truncated",
             file_.size());
}

void ArrowMessages::begin() {
  begun_ = true;
  std::array<char, kMagicPadded> head{};
  const auto found = file_.read(0, head);
  const std::string_view magic(found.data(), found.size());
  if (magic.starts_with("FEA1")) {
    file_.fail("a file of Feather's first version, which is not Arrow", 0,
               "write it again with pyarrow.feather.write_feather, version 2");
  }
  if (!magic.starts_with(kMagic)) return;
  is_file_format_ = true;
  position_ = kMagicPadded;
  if (hashing_) file_.hash_more(found);
}

bool ArrowMessages::next(Header& header) {
  if (!begun_) begin();
  header = {};
  header.begin = position_;
  auto length = int64_t{read_number<int32_t>()};
  // Files before format 0.15 have no -1 before the length.
  if (length == -1) length = read_number<int32_t>();
  if (length == 0) {
    check_tail();
    return false;
  }
  const uint64_t rest = file_.size() - position_;
  if (length < 0 || static_cast<uint64_t>(length) > kMaxMetadataBytes) {
    file_.fail(fmt::format("not a readable Arrow file: a message of {} bytes", length),
               header.begin);
  }
  if (static_cast<uint64_t>(length) > rest) fail_truncated();
  auto metadata =
      require(arrow::AllocateBuffer(length, pool_), file_.path(), "a message", options_);
  read(position_,
       {reinterpret_cast<char*>(metadata->mutable_data()), static_cast<size_t>(length)});
  position_ += static_cast<uint64_t>(length);
  header.metadata = std::move(metadata);
  const std::string where = fmt::format("the message at byte {}", header.begin);
  const auto message = require(arrow::ipc::Message::Open(header.metadata, nullptr),
                               file_.path(), where, options_);
  header.type = message->type();
  header.body = position_;
  const int64_t body = message->body_length();
  if (body < 0) {
    file_.fail(fmt::format("not a readable Arrow file: a body of {} bytes", body),
               header.begin);
  }
  if (static_cast<uint64_t>(body) > file_.size() - position_) fail_truncated();
  position_ += static_cast<uint64_t>(body);
  header.end = position_;
  if (header.type == arrow::ipc::MessageType::RECORD_BATCH) {
    header.rows = batch_rows(*header.metadata);
    if (header.rows < 0) {
      file_.fail(fmt::format("a record batch of {} rows", header.rows), header.begin);
    }
  }
  return true;
}

std::unique_ptr<arrow::ipc::Message> ArrowMessages::load(const Header& header) {
  const std::string where = fmt::format("the record batch at byte {}", header.begin);
  const uint64_t size = header.end - header.body;
  auto body = require(arrow::AllocateBuffer(static_cast<int64_t>(size), pool_),
                      file_.path(), where, options_);
  read(header.body,
       {reinterpret_cast<char*>(body->mutable_data()), static_cast<size_t>(size)});
  return require(arrow::ipc::Message::Open(header.metadata, std::move(body)),
                 file_.path(), where, options_);
}

ArrowMessages::Node ArrowMessages::node(const Header& header, uint64_t number) {
  constexpr uint64_t kNodesField = 1;
  const Flatbuffer buffer(*header.metadata);
  const uint64_t field = batch_field(buffer, kNodesField);
  if (field == 0) return {};
  const uint64_t nodes = field + buffer.at<uint32_t>(field);
  if (number >= buffer.at<uint32_t>(nodes)) return {};
  const uint64_t place = nodes + sizeof(uint32_t) + number * sizeof(Node);
  return {buffer.at<int64_t>(place), buffer.at<int64_t>(place + sizeof(int64_t))};
}

bool ArrowMessages::is_compressed(const Header& header) {
  constexpr uint64_t kCompressionField = 3;
  return batch_field(Flatbuffer(*header.metadata), kCompressionField) != 0;
}

void ArrowMessages::check_tail() {
  const uint64_t rest = file_.size() - position_;
  if (!is_file_format_) {
    if (rest == 0) return;
    file_.fail(fmt::format("{} bytes after the end of the Arrow data", rest), position_,
               "write each Arrow stream to a file of its own");
  }
  if (rest < kFileTail) fail_truncated();
  std::array<char, kFileTail> tail{};
  file_.read(file_.size() - kFileTail, tail);
  int32_t footer = 0;
  std::memcpy(&footer, tail.data(), sizeof(footer));
  if (std::string_view(tail.data() + sizeof(footer), kMagic.size()) != kMagic) {
    fail_truncated();
  }
  if (footer < 0 || static_cast<uint64_t>(footer) > rest - kFileTail) {
    file_.fail(fmt::format("not a readable Arrow file: a footer of {} bytes", footer),
               file_.size() - kFileTail);
  }
  if (!hashing_) return;
  std::array<char, 4096> piece{};
  while (position_ < file_.size()) {
    const auto part = file_.read(position_, piece);
    file_.hash_more(part);
    position_ += part.size();
  }
}

}  // namespace longhaul::data
