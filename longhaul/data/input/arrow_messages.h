#pragma once

#include <arrow/buffer.h>
#include <arrow/ipc/message.h>
#include <arrow/memory_pool.h>

#include <cstdint>
#include <memory>
#include <span>

#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/stored_file.h"

namespace longhaul::data {

/// Reads the messages of an Arrow file front to back, for the Arrow reader. The file has
/// Arrow's stream format, which Hugging Face datasets writes, or Arrow's file format,
/// which holds such a stream. Lengths are checked before anything is allocated. Not
/// thread-safe.
class ArrowMessages {
 public:
  struct Header {
    uint64_t begin = 0;
    uint64_t body = 0;
    uint64_t end = 0;
    arrow::ipc::MessageType type = arrow::ipc::MessageType::NONE;
    int64_t rows = 0;  ///< rows of a record batch
    std::shared_ptr<arrow::Buffer> metadata;
  };

  /// Requires that `file` hashes nothing by itself, and that all arguments outlive this
  /// object.
  ArrowMessages(StoredFile& file, arrow::MemoryPool* pool, const InputOptions& options);

  /// Sets whether bytes that are read from now on are hashed.
  void set_hashing(bool hashing) { hashing_ = hashing; }
  /// Reads the next message without its body; false at the end of the stream. Throws
  /// InputError if the file ends without Arrow's end-of-stream mark, or if unexpected
  /// bytes follow the mark.
  bool next(Header& header);
  /// Reads the body of the last message that next() gave. Returns the whole message.
  std::unique_ptr<arrow::ipc::Message> load(const Header& header);
  /// A column of a record batch, or the values in its lists.
  struct Node {
    int64_t length = 0;
    int64_t nulls = 0;
  };
  /// Returns node `number` of a record batch. The nodes are the columns, and the nodes of
  /// the values inside a column follow the column. Returns a node of length 0 if the
  /// batch has no such node.
  static Node node(const Header& header, uint64_t number);
  /// Returns whether the body of a record batch is compressed.
  static bool is_compressed(const Header& header);
  /// Returns whether the file is a stream, not of the format with a footer. Known once
  /// next() was called.
  bool is_stream() const { return !is_file_format_; }
  /// Returns where the next message begins.
  uint64_t position() const { return position_; }

 private:
  void begin();
  void read(uint64_t offset, std::span<char> to);
  template <typename Number>
  Number read_number();
  [[noreturn]] void fail_truncated() const;
  /// Checks the bytes after the end of the stream.
  void check_tail();

  StoredFile& file_;
  arrow::MemoryPool* pool_;
  const InputOptions& options_;
  uint64_t position_ = 0;
  bool begun_ = false;
  bool is_file_format_ = false;
  bool hashing_ = false;
};

}  // namespace longhaul::data
