#include "longhaul/format/gguf.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <type_traits>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/format/q8_0.h"
#include "longhaul/format/tensor_slice.h"

namespace longhaul::format {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;
constexpr const char* kAlignmentKey = "general.alignment";

/// The types of values; the numbers are those of the format.
enum class ValueType : uint32_t {
  U8,
  I8,
  U16,
  I16,
  U32,
  I32,
  F32,
  Bool,
  String,
  Array,
  U64,
  I64,
  F64,
};
constexpr uint32_t kValueTypes = 13;

constexpr uint64_t rounded_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// ---- writing ----

template <class T>
constexpr ValueType value_type() {
  if constexpr (std::is_same_v<T, uint32_t>) return ValueType::U32;
  if constexpr (std::is_same_v<T, int32_t>) return ValueType::I32;
  if constexpr (std::is_same_v<T, uint64_t>) return ValueType::U64;
  if constexpr (std::is_same_v<T, int64_t>) return ValueType::I64;
  if constexpr (std::is_same_v<T, float>) return ValueType::F32;
  if constexpr (std::is_same_v<T, double>) return ValueType::F64;
  if constexpr (std::is_same_v<T, bool>) return ValueType::Bool;
  return ValueType::String;
}

template <class T>
void put(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}
void put(std::string& out, const std::string& text) {
  put(out, uint64_t{text.size()});
  out += text;
}
void put(std::string& out, ValueType type) { put(out, static_cast<uint32_t>(type)); }

struct PutValue {
  std::string& out;

  void operator()(const GgufUnread&) const {
    LH_ASSERT(false, "a value that was not read is written");
  }
  template <class T>
  void operator()(const T& value) const {
    put(out, value_type<T>());
    put(out, value);
  }
  template <class T>
  void operator()(const std::vector<T>& values) const {
    put(out, ValueType::Array);
    put(out, value_type<T>());
    put(out, uint64_t{values.size()});
    for (const T& value : values) put(out, value);
  }
};

void put_tensor(std::string& out, const GgufTensor& tensor) {
  put(out, tensor.name);
  put(out, static_cast<uint32_t>(tensor.shape.size()));
  for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim) {
    put(out, static_cast<uint64_t>(*dim));
  }
  put(out, static_cast<uint32_t>(tensor.type));
  put(out, tensor.offset);
}

// ---- reading ----

/// Numbers of a list, and bytes of a text, that are kept when it is read.
constexpr uint64_t kMaxKept = uint64_t{1} << 16;
constexpr uint64_t kMaxText = uint64_t{1} << 20;
/// A key with one letter and a value of one byte; a tensor's entry with one dim.
constexpr uint64_t kLeastKey = 8 + 1 + 4 + 1, kLeastTensor = 8 + 1 + 4 + 8 + 4 + 8;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;

/// Returns the type of a tensor of other files, for messages.
std::string other_type(uint32_t type) {
  static constexpr const char* kNames[] = {
      "F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
      "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
      "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
      "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16"};
  const bool known = type < std::size(kNames) && *kNames[type] != '\0';
  return known ? fmt::format("{} ({})", kNames[type], type) : fmt::format("{}", type);
}

class Reader {
 public:
  Reader(std::span<const std::byte> file, const std::string& what)
      : file_(file), what_(what) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return file_.size() - at_; }
  template <class... Args>
  [[noreturn]] void fail(uint64_t byte, fmt::format_string<Args...> problem,
                         Args&&... args) const {
    fail_input("gguf", "{}: byte {}: {}", what_, byte,
               fmt::format(problem, std::forward<Args>(args)...));
  }

  /// Returns the next bytes; `part` says what they are, for messages.
  std::span<const std::byte> take(uint64_t bytes, std::string_view part) {
    if (bytes > left()) {
      fail(at_, "{} needs {} bytes, and the file has {} more; is the copy complete?",
           part, bytes, left());
    }
    const auto found = file_.subspan(at_, bytes);
    at_ += bytes;
    return found;
  }
  template <class T>
  T number(std::string_view part) {
    T value;
    std::memcpy(&value, take(sizeof(T), part).data(), sizeof(T));
    return value;
  }
  std::string text(std::string_view part, uint64_t most) {
    const uint64_t start = at_;
    const auto length = number<uint64_t>(part);
    if (length > most)
      fail(start, "{} has {} bytes; at most {} can be", part, length, most);
    const auto bytes = take(length, part);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// Reads a count of things that take at least `least` bytes each.
  uint64_t count(std::string_view part, uint64_t least) {
    const uint64_t start = at_;
    const auto found = number<uint64_t>(part);
    if (found > left() / least) {
      fail(start, "{} is {}, for which the {} bytes behind it are too few", part, found,
           left());
    }
    return found;
  }
  bool flag(std::string_view part) {
    const uint64_t start = at_;
    const auto value = number<uint8_t>(part);
    if (value > 1) fail(start, "{} is the truth value {}; 0 or 1 can be", part, value);
    return value == 1;
  }

 private:
  std::span<const std::byte> file_;
  const std::string& what_;
  uint64_t at_ = 0;
};

ValueType read_type(Reader& in, const std::string& part) {
  const uint64_t start = in.at();
  const auto type = in.number<uint32_t>(part);
  if (type >= kValueTypes) {
    in.fail(start, "{} has a value of type {}; types below {} are known", part, type,
            kValueTypes);
  }
  return static_cast<ValueType>(type);
}

template <class T>
std::vector<T> read_numbers(Reader& in, uint64_t count, const std::string& part) {
  std::vector<T> values(count);
  const auto bytes = in.take(count * sizeof(T), part);
  if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

GgufValue read_list(Reader& in, const std::string& part) {
  const uint64_t start = in.at();
  const ValueType type = read_type(in, part);
  static constexpr uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
  const uint64_t size = kSizes[static_cast<uint32_t>(type)];
  if (size == 0) in.fail(start, "{} is a list of lists, which is not read", part);
  const uint64_t count = in.count(fmt::format("the length of {}", part), size);
  if (type == ValueType::String) {
    for (uint64_t i = 0; i < count; ++i) {
      in.take(in.number<uint64_t>(part), part);
    }
    return GgufUnread{count};
  }
  if (count <= kMaxKept && type == ValueType::Bool) {
    std::vector<bool> values;
    for (uint64_t i = 0; i < count; ++i) values.push_back(in.flag(part));
    return values;
  }
  if (count <= kMaxKept && type == ValueType::I32) {
    return read_numbers<int32_t>(in, count, part);
  }
  if (count <= kMaxKept && type == ValueType::F32) {
    return read_numbers<float>(in, count, part);
  }
  in.take(count * size, part);
  return GgufUnread{count};
}

GgufValue read_text_value(Reader& in, const std::string& part) {
  const auto length = in.number<uint64_t>(part);
  const auto bytes = in.take(length, part);
  if (length > kMaxText) return GgufUnread{length};
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

GgufValue read_value(Reader& in, const std::string& part) {
  switch (read_type(in, part)) {
    case ValueType::U8:
      return uint32_t{in.number<uint8_t>(part)};
    case ValueType::I8:
      return int32_t{in.number<int8_t>(part)};
    case ValueType::U16:
      return uint32_t{in.number<uint16_t>(part)};
    case ValueType::I16:
      return int32_t{in.number<int16_t>(part)};
    case ValueType::U32:
      return in.number<uint32_t>(part);
    case ValueType::I32:
      return in.number<int32_t>(part);
    case ValueType::F32:
      return in.number<float>(part);
    case ValueType::Bool:
      return in.flag(part);
    case ValueType::String:
      return read_text_value(in, part);
    case ValueType::Array:
      return read_list(in, part);
    case ValueType::U64:
      return in.number<uint64_t>(part);
    case ValueType::I64:
      return in.number<int64_t>(part);
    case ValueType::F64:
      return in.number<double>(part);
  }
  return GgufUnread{};
}

/// Returns the beginning of a name in quotes for messages, without bytes that a terminal
/// obeys.
std::string in_quotes(const std::string& name) {
  constexpr size_t kShown = 80;
  std::string shown;
  for (const char c : name.substr(0, kShown)) {
    const bool plain = c >= ' ' && c <= '~';
    shown += plain ? std::string(1, c)
                   : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return "\"" + shown + (name.size() > kShown ? "\" ..." : "\"");
}

void read_start(Reader& in) {
  const auto magic = in.take(4, "the magic number");
  if (std::memcmp(magic.data(), kMagic.data(), 4) != 0) {
    in.fail(0, "this is no GGUF file: it does not begin with \"GGUF\"");
  }
  const auto version = in.number<uint32_t>("the version");
  if (version == __builtin_bswap32(kVersion)) {
    in.fail(4,
            "the file is for machines of the other byte order; make it again without "
            "--bigendian");
  }
  // Versions 2 and 3 differ in the byte order that may be.
  if (version != kVersion && version != 2) {
    in.fail(4, "the file has version {}; versions 2 and 3 are read", version);
  }
}

void read_values(Reader& in, uint64_t count, GgufHeader& header) {
  std::set<std::string> names;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t start = in.at();
    std::string key = in.text(fmt::format("the name of key {}", i), kMaxKeyBytes);
    const std::string part = "key " + in_quotes(key);
    if (key.empty()) in.fail(start, "key {} has no name", i);
    if (!names.insert(key).second) in.fail(start, "{} comes twice", part);
    GgufValue value = read_value(in, part);
    header.values.emplace_back(std::move(key), std::move(value));
  }
}

uint64_t read_alignment(const Reader& in, const GgufValues& values) {
  const GgufValue* given = find_value(values, kAlignmentKey);
  if (given == nullptr) return kGgufAlignment;
  const auto* alignment = std::get_if<uint32_t>(given);
  if (alignment == nullptr || !std::has_single_bit(*alignment) || *alignment < 8 ||
      *alignment > kMaxAlignment) {
    in.fail(in.at(), "{} is {}; a power of two from 8 to {} can be", kAlignmentKey,
            describe_value(*given), kMaxAlignment);
  }
  return *alignment;
}

std::vector<int64_t> read_shape(Reader& in, const std::string& part) {
  const uint64_t start = in.at();
  const auto dims = in.number<uint32_t>(part);
  if (dims == 0 || dims > kMaxDims) {
    in.fail(start, "{} has {} dims; 1 to {} can be", part, dims, kMaxDims);
  }
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    const auto dim = in.number<int64_t>(part);
    // The bytes of the elements have to fit a signed number, too.
    if (dim <= 0 || __builtin_mul_overflow(elements, dim, &elements) ||
        elements > INT64_MAX / 8) {
      in.fail(in.at() - 8, "{} has a dim of {} elements", part, dim);
    }
    shape.push_back(dim);
  }
  std::ranges::reverse(shape);
  return shape;
}

GgufType read_tensor_type(Reader& in, const std::string& part,
                          const std::vector<int64_t>& shape) {
  const uint64_t start = in.at();
  const auto type = in.number<uint32_t>(part);
  for (const GgufType known :
       {GgufType::F32, GgufType::F16, GgufType::Q8_0, GgufType::BF16}) {
    if (type != static_cast<uint32_t>(known)) continue;
    if (known == GgufType::Q8_0 && shape.back() % kQ8Elements != 0) {
      in.fail(start, "{} has rows of {} elements, which are no whole blocks of Q8_0",
              part, shape.back());
    }
    return known;
  }
  in.fail(start,
          "{} has the type {}, which is not read; F32, F16, BF16 and Q8_0 are. Take a "
          "file in one of these types",
          part, other_type(type));
}

void read_tensors(Reader& in, uint64_t count, GgufHeader& header) {
  const uint64_t alignment = read_alignment(in, header.values);
  std::set<std::string> names;
  uint64_t end = 0;
  for (uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    const uint64_t start = in.at();
    tensor.name = in.text(fmt::format("the name of tensor {}", i), kMaxGgufName - 1);
    const std::string part = "tensor " + in_quotes(tensor.name);
    if (tensor.name.empty()) in.fail(start, "tensor {} has no name", i);
    if (!names.insert(tensor.name).second) in.fail(start, "{} comes twice", part);
    tensor.shape = read_shape(in, part);
    tensor.type = read_tensor_type(in, part, tensor.shape);
    tensor.offset = in.number<uint64_t>(part);
    if (tensor.offset != end) {
      in.fail(in.at() - 8,
              "{} has its data at {}, expected {}, behind the tensor before it", part,
              tensor.offset, end);
    }
    end = rounded_up(end + tensor.bytes(), alignment);
    if (end > (uint64_t{1} << 62)) in.fail(start, "{} ends beyond any file", part);
    header.tensors.push_back(std::move(tensor));
  }
  header.data_start = rounded_up(in.at(), alignment);
}

/// Throws InputError unless the data of the tensors are all that follows. The padding
/// behind the last tensor may be absent.
void check_data(const Reader& in, uint64_t file_size, const GgufHeader& header) {
  const uint64_t alignment = read_alignment(in, header.values);
  uint64_t end = header.data_start;
  for (const GgufTensor& tensor : header.tensors) {
    end = header.data_start + tensor.offset + tensor.bytes();
    if (end > file_size) {
      in.fail(file_size,
              "the file ends, and tensor {} needs the bytes up to {}; is the copy "
              "complete?",
              in_quotes(tensor.name), end);
    }
  }
  const uint64_t padded_end =
      header.data_start + rounded_up(end - header.data_start, alignment);
  if (!header.tensors.empty() && file_size > padded_end) {
    in.fail(padded_end, "{} bytes stand behind the last tensor", file_size - padded_end);
  }
}

struct Describe {
  std::string operator()(const GgufUnread& value) const {
    return fmt::format("a list or text of {}", value.elements);
  }
  std::string operator()(const std::string& value) const { return in_quotes(value); }
  template <class T>
  std::string operator()(const T& value) const {
    return fmt::format("{}", value);
  }
  template <class T>
  std::string operator()(const std::vector<T>& values) const {
    if (values.size() > 64) return fmt::format("a list of {}", values.size());
    std::string text;
    for (const T& value : values) text += (text.empty() ? "" : ", ") + (*this)(value);
    return "[" + text + "]";
  }
};

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::F32:
      return "F32";
    case GgufType::F16:
      return "F16";
    case GgufType::Q8_0:
      return "Q8_0";
    case GgufType::BF16:
      return "BF16";
  }
  return "";
}

uint64_t gguf_bytes(GgufType type, int64_t elements) {
  const auto count = static_cast<uint64_t>(elements);
  if (type == GgufType::Q8_0) return count / kQ8Elements * kQ8Bytes;
  return count * (type == GgufType::F32 ? 4 : 2);
}

const GgufValue* find_value(const GgufValues& values, std::string_view key) {
  const auto found = std::ranges::find(values, key, &GgufValues::value_type::first);
  return found == values.end() ? nullptr : &found->second;
}

std::string describe_value(const GgufValue& value) {
  return std::visit(Describe{}, value);
}

int64_t GgufTensor::num_elements() const {
  int64_t elements = 1;
  for (const int64_t dim : shape) elements *= dim;
  return elements;
}

std::string gguf_header_bytes(const GgufValues& values,
                              std::vector<GgufTensor>& tensors) {
  std::string out(kMagic);
  put(out, kVersion);
  put(out, uint64_t{tensors.size()});
  put(out, uint64_t{values.size()});
  for (const auto& [key, value] : values) {
    put(out, key);
    std::visit(PutValue{out}, value);
  }
  uint64_t offset = 0;
  for (GgufTensor& tensor : tensors) {
    if (tensor.name.size() >= kMaxGgufName) {
      fail_input("gguf", "the tensor name \"{}\" has {} bytes; GGUF holds at most {}",
                 tensor.name, tensor.name.size(), kMaxGgufName - 1);
    }
    tensor.offset = offset;
    offset = rounded_up(offset + tensor.bytes(), kGgufAlignment);
    put_tensor(out, tensor);
  }
  out.resize(rounded_up(out.size(), kGgufAlignment), '\0');
  return out;
}

GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& what) {
  Reader in(file, what);
  read_start(in);
  const uint64_t tensors = in.count("the number of tensors", kLeastTensor);
  const uint64_t keys = in.count("the number of keys", kLeastKey);
  GgufHeader header;
  read_values(in, keys, header);
  read_tensors(in, tensors, header);
  check_data(in, file.size(), header);
  return header;
}

namespace {
// Writing to the device begins early, so that the device works while the rest is written.
constexpr uint64_t kGgufFlushBytes = uint64_t{32} << 20;

void refuse_occupied(const fs::path& path) {
  fail_input("gguf", "{}: exists already; give another name, or remove it first",
             path.string());
}
}  // namespace

GgufWriter::GgufWriter(const fs::path& path, const GgufValues& values,
                       std::vector<GgufTensor> tensors)
    : path_(path),
      tensors_(std::move(tensors)),
      scratch_(path.string() + fmt::format(".tmp.{}", ::getpid())) {
  if (is_seen(path_)) refuse_occupied(path_);
  const std::string header = gguf_header_bytes(values, tensors_);
  size_ = header.size();
  for (const GgufTensor& tensor : tensors_) {
    size_ += rounded_up(tensor.bytes(), kGgufAlignment);
  }
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path());
  file_ = File::create(scratch_.path());
  write(std::as_bytes(std::span(header)));
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  file_.write(bytes);
  written_ += bytes.size();
  if (written_ - flushed_ < kGgufFlushBytes) return;
  file_.start_writeback(flushed_, written_ - flushed_);
  flushed_ = written_;
}

void GgufWriter::append(std::span<const std::byte> bytes) {
  LH_CHECK(current_ < tensors_.size(), "gguf", "{} bytes behind the last tensor",
           bytes.size());
  const uint64_t all = tensors_[current_].bytes();
  LH_CHECK(bytes.size() <= all - in_tensor_, "gguf", "{}: {} bytes behind {} of {}",
           tensors_[current_].name, bytes.size(), in_tensor_, all);
  write(bytes);
  in_tensor_ += bytes.size();
  if (in_tensor_ < all) return;
  static constexpr std::byte kPadding[kGgufAlignment] = {};
  write(std::span(kPadding).first(rounded_up(all, kGgufAlignment) - all));
  ++current_;
  in_tensor_ = 0;
}

void GgufWriter::finish() {
  LH_CHECK(current_ == tensors_.size() && written_ == size_, "gguf",
           "{}: {} of {} bytes written", path_.string(), written_, size_);
  file_.sync();
  file_.close();
  if (!rename_to_new(scratch_.path(), path_)) refuse_occupied(path_);
  scratch_.keep();
  sync_directory(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

}  // namespace longhaul::format
