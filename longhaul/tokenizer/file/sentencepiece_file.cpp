#include "longhaul/tokenizer/file/sentencepiece_file.h"

#include <fmt/format.h>

#include <cstring>

#include "longhaul/base/text.h"
#include "longhaul/tokenizer/file/json_node.h"

namespace longhaul::tokenizer {
namespace {

constexpr size_t kMaxPieceBytes = 4096;

/// One field of a protocol buffer message.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // content of varints and of fixed-size fields
  std::string_view bytes;  // content of length-delimited fields
  bool delimited = false;
  size_t at = 0;  // in the file
};

/// Walks over the fields of one message.
class Message {
 public:
  Message(std::string_view bytes, size_t at, std::string_view name)
      : bytes_(bytes), at_(at), name_(name) {}

  template <class... Args>
  [[noreturn]] void fail(size_t at, fmt::format_string<Args...> problem,
                         Args&&... args) const {
    throw DamagedModel(
        "tokenizer",
        fmt::format("{}: not a SentencePiece model: {} at byte {}; fetch the file again",
                    name_, fmt::format(problem, std::forward<Args>(args)...), at));
  }
  template <class... Args>
  [[noreturn]] void refuse(size_t at, fmt::format_string<Args...> what,
                           Args&&... args) const {
    fail_input("tokenizer",
               "{}: {} at byte {}, which is not supported; save the tokenizer as "
               "tokenizer.json with transformers and give that file",
               name_, fmt::format(what, std::forward<Args>(args)...), at);
  }
  std::string_view name() const { return name_; }

  bool next(Field& field) {
    if (pos_ == bytes_.size()) return false;
    field = {};
    field.at = at_ + pos_;
    const uint64_t tag = varint();
    field.number = tag >> 3;
    if (field.number == 0) fail(field.at, "a field without a number");
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2: {
        const uint64_t size = varint();
        if (size > bytes_.size() - pos_) {
          fail(field.at, "a field of {} bytes where {} are left", size,
               bytes_.size() - pos_);
        }
        field.bytes = bytes_.substr(pos_, size);
        field.delimited = true;
        field.at = at_ + pos_;
        pos_ += size;
        break;
      }
      case 5:
        field.value = fixed(4);
        break;
      default:
        fail(field.at, "a field of the kind {}", tag & 7);
    }
    return true;
  }
  std::string text(const Field& field) const {
    if (!field.delimited) fail(field.at, "a number where a text belongs");
    if (const auto bad = find_invalid_utf8(field.bytes)) {
      fail(field.at + *bad, "a text that is not UTF-8");
    }
    return std::string(field.bytes);
  }
  Message inside(const Field& field) const {
    if (!field.delimited) fail(field.at, "a number where a message belongs");
    return {field.bytes, field.at, name_};
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (pos_ == bytes_.size()) fail(at_ + pos_, "the end of the file inside a number");
      const auto byte = static_cast<uint8_t>(bytes_[pos_++]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    fail(at_ + pos_, "a number of more than 64 bits");
  }
  uint64_t fixed(size_t size) {
    if (bytes_.size() - pos_ < size) {
      fail(at_ + pos_, "the end of the file inside a number");
    }
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + pos_, size);
    pos_ += size;
    return value;
  }

  std::string_view bytes_;
  size_t pos_ = 0;
  size_t at_;
  std::string_view name_;
};

SentencePieceFile::Piece read_piece(Message message) {
  SentencePieceFile::Piece piece;
  for (Field field; message.next(field);) {
    if (field.number == 1) {
      piece.text = message.text(field);
    } else if (field.number == 2) {
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&piece.score, &bits, sizeof(bits));
      if (!(piece.score > -1e30f && piece.score < 1e30f)) {
        message.fail(field.at, "a score that is no number");
      }
    } else if (field.number == 3) {
      if (field.value < 1 || field.value > 6) {
        message.refuse(field.at, "a piece of the type {}", field.value);
      }
      piece.type = static_cast<SentencePieceFile::PieceType>(field.value);
    }
    if (piece.text.size() > kMaxPieceBytes) {
      message.refuse(field.at, "a piece of {} bytes", piece.text.size());
    }
  }
  return piece;
}

void read_trainer(Message message, SentencePieceFile& file) {
  for (Field field; message.next(field);) {
    if (field.number == 3) {
      if (field.value < 1 || field.value > 4) {
        message.refuse(field.at, "the model type {}", field.value);
      }
      file.model_type = static_cast<SentencePieceFile::ModelType>(field.value);
    }
    if (field.number == 24) file.whitespace_as_suffix = field.value != 0;
    if (field.number == 35) file.byte_fallback = field.value != 0;
    if (field.number == 44) file.unknown_surface = message.text(field);
    if (field.number == 46) file.bos_piece = message.text(field);
    if (field.number == 47) file.eos_piece = message.text(field);
  }
}

void read_normalizer(Message message, SentencePieceFile& file) {
  for (Field field; message.next(field);) {
    if (field.number == 2) {
      if (!field.delimited) message.fail(field.at, "a number where bytes belong");
      file.charsmap = field.bytes;
    }
    if (field.number == 3) file.add_dummy_prefix = field.value != 0;
    if (field.number == 4) file.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) file.escape_whitespaces = field.value != 0;
  }
}

}  // namespace

SentencePieceFile parse_sentencepiece(std::string_view bytes, std::string_view name) {
  SentencePieceFile file;
  Message message(bytes, 0, name);
  for (Field field; message.next(field);) {
    if (field.number == 1) {
      if (file.pieces.size() >= kMaxTokens) {
        message.refuse(field.at, "more than {} pieces", kMaxTokens);
      }
      file.pieces.push_back(read_piece(message.inside(field)));
      if (file.pieces.back().text.empty()) message.fail(field.at, "a piece without text");
    } else if (field.number == 2) {
      read_trainer(message.inside(field), file);
    } else if (field.number == 3) {
      read_normalizer(message.inside(field), file);
    } else if (field.number == 5) {
      // Field 5 is the denormalizer, which published models leave empty.
      SentencePieceFile back;
      read_normalizer(message.inside(field), back);
      if (!back.charsmap.empty()) {
        fail_input("tokenizer", "{}: a denormalizer is not supported", name);
      }
    }
  }
  if (file.pieces.empty()) message.fail(bytes.size(), "no pieces");
  return file;
}

}  // namespace longhaul::tokenizer
