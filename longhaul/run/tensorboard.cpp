#include "longhaul/run/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <span>
#include <utility>

#include "longhaul/base/crc.h"
#include "longhaul/base/process.h"
#include "longhaul/base/refused.h"
#include "longhaul/base/text.h"

namespace longhaul::run {
namespace {

constexpr const char* kFileBegin = "events.out.tfevents.";
constexpr auto kFlushEvery = std::chrono::seconds(5);

/// Returns the masked form of a checksum, which TFRecord stores.
uint32_t masked(std::string_view bytes) {
  return std::rotr(crc_of<kCrc32c>(std::as_bytes(std::span(bytes))), 15) + 0xA282EAD8U;
}

template <typename T>
std::string little_endian(T value) {
  std::string out(sizeof(T), '\0');
  for (size_t i = 0; i < sizeof(T); ++i) out[i] = static_cast<char>(value >> (8 * i));
  return out;
}

// The few pieces of the protocol-buffer wire format that an Event needs.
std::string varint(uint64_t value) {
  std::string out;
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  return out + static_cast<char>(value);
}
std::string field_varint(int number, uint64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(value);
}
std::string field_bytes(int number, std::string_view bytes) {
  return varint((static_cast<uint64_t>(number) << 3) | 2) + varint(bytes.size()) +
         std::string(bytes);
}
std::string field_double(int number, double value) {
  return varint((static_cast<uint64_t>(number) << 3) | 1) +
         little_endian(std::bit_cast<uint64_t>(value));
}
std::string field_float(int number, float value) {
  return varint((static_cast<uint64_t>(number) << 3) | 5) +
         little_endian(std::bit_cast<uint32_t>(value));
}

fs::path new_file(const fs::path& dir) {
  make_setting_directory("log.tensorboard_dir", dir);
  for (int n = 0;; ++n) {
    const fs::path path = dir / fmt::format("{}{:.0f}.{}.{}.{}", kFileBegin, unix_time(),
                                            host_name(), ::getpid(), n);
    if (!fs::exists(path)) return path;
  }
}

}  // namespace

bool holds_event_files(const fs::path& dir) {
  std::error_code hidden;  // the answer decides about a warning alone
  for (fs::directory_iterator entry(dir, hidden), end; !hidden && entry != end;
       entry.increment(hidden)) {
    if (entry->path().filename().string().starts_with(kFileBegin)) return true;
  }
  return false;
}

TensorBoardWriter::TensorBoardWriter(const fs::path& dir, int64_t step,
                                     std::function<void(const std::string& line)> tell)
    : file_(new_file(dir)), flushed_(std::chrono::steady_clock::now()) {
  file_.on_trouble(std::move(tell));
  // Event { wall_time = 1, file_version = 3 }
  record(field_double(1, unix_time()) + field_bytes(3, "brain.Event:2"));
  begin_session(step);
  file_.begin_with(buffer_);
  flush();
}

TensorBoardWriter::~TensorBoardWriter() {
  if (file_.is_open()) flush();
}

void TensorBoardWriter::begin_session(int64_t step) {
  // Event { wall_time = 1, step = 2, session_log = 7 { status = 1: START = 1 } }
  record(field_double(1, unix_time()) + field_varint(2, static_cast<uint64_t>(step)) +
         field_bytes(7, field_varint(1, 1)));
}

void TensorBoardWriter::scalar(std::string_view tag, int64_t step, double value) {
  // Value { simple_value = 2 }
  summary(tag, step, field_float(2, static_cast<float>(value)));
}

void TensorBoardWriter::text(std::string_view tag, int64_t step, std::string_view lines) {
  // The plugin shows Markdown, in which an indented line stands as it is, whatever it
  // holds.
  if (lines.ends_with('\n')) lines.remove_suffix(1);
  std::string shown = "    ";
  for (const char c : lines) {
    shown += c;
    if (c == '\n') shown += "    ";
  }
  // The plugin fails for bytes that are no UTF-8, such as those of a variable's value.
  while (const auto wrong = find_invalid_utf8(shown)) shown[*wrong] = '?';
  // Value { metadata = 9 { plugin_data = 1 { plugin_name = 1 } },
  //         tensor = 8 { dtype = 1: STRING = 7,
  //                      tensor_shape = 2 { dim = 2 { size = 1 } }, string_val = 8 } }
  const std::string shape = field_bytes(2, field_varint(1, 1));
  summary(tag, step,
          field_bytes(9, field_bytes(1, field_bytes(1, "text"))) +
              field_bytes(
                  8, field_varint(1, 7) + field_bytes(2, shape) + field_bytes(8, shown)));
}

void TensorBoardWriter::summary(std::string_view tag, int64_t step,
                                const std::string& value) {
  // Event { wall_time = 1, step = 2, summary = 5 { value = 1 { tag = 1, ... } } }
  record(field_double(1, unix_time()) + field_varint(2, static_cast<uint64_t>(step)) +
         field_bytes(5, field_bytes(1, field_bytes(1, tag) + value)));
  if (std::chrono::steady_clock::now() - flushed_ > kFlushEvery) flush();
}

void TensorBoardWriter::flush() {
  flushed_ = std::chrono::steady_clock::now();
  if (buffer_.empty()) return;
  // Somebody may have removed the directory of the event files. The run's directory above
  // it is not made again here.
  std::error_code ignored;
  fs::create_directory(file_.path().parent_path(), ignored);
  file_.append(std::exchange(buffer_, {}));
}

void TensorBoardWriter::record(const std::string& event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  buffer_ +=
      length + little_endian(masked(length)) + event + little_endian(masked(event));
}

}  // namespace longhaul::run
