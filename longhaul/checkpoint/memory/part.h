#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/checkpoint/rank_file.h"
#include "longhaul/checkpoint/state_tensor.h"

namespace longhaul::checkpoint {

// A part is one rank's state at one step, in a mapped file in a machine's memory:
//   seal    one page: run, attempt, step, rank, sizes, and the hashes of text, room and
//           table; the seal ends with a hash of itself
//   text    which boxes lie where (JSON); the same for every step
//   room    state.json of the step
//   table   the xxh3-128 of each 1 MiB block of the data
//   data    the boxes
// While a part is being changed its seal is empty. A part counts only when everything in
// it fits its seal. So readers depend on no order of writes, and a copy that was cut off
// on its way to another machine does not count either.

inline constexpr int kPartVersion = 1;
/// Hex digits of a run's key (memory_directory.h).
inline constexpr size_t kRunKeyDigits = 32;

/// The name of a part's file: "a3_s1_rank_00002.part".
struct PartName {
  int attempt = 0;
  int slot = 0;
  int owner = 0;
  std::string text() const;
  /// Returns nothing for any other name.
  static std::optional<PartName> parse(std::string_view name);
};

/// What the seal says of the part.
struct PartLabel {
  std::string run;  ///< kRunKeyDigits
  int attempt = 0;
  int64_t step = 0;
  int owner = 0;  ///< rank whose state the part holds
  int world = 0;  ///< number of ranks whose parts make the whole state
  bool operator==(const PartLabel&) const = default;
};

/// Sizes of a part, which are the same at every step of an attempt.
struct PartShape {
  uint64_t text_bytes = 0;
  uint64_t room_bytes = 0;
  uint64_t data_bytes = 0;

  uint64_t blocks() const;
  uint64_t room_at() const;
  uint64_t table_at() const;
  uint64_t data_at() const;
  uint64_t file_bytes() const;
};

/// Where each tensor lies in the data of a part, and the text that says so.
struct PartPlan {
  std::vector<uint64_t> begins;
  uint64_t data_bytes = 0;
  std::string text;
};
/// Returns the plan of a part with these tensors, one after the other.
PartPlan plan_part(const std::vector<StateTensor>& tensors, const Json& layout);

/// Writes a part. The rank whose state it is calls write(); on another machine the bytes
/// come from that rank by messages.
class PartWriter {
 public:
  PartWriter() = default;
  /// Makes the file, which must not exist, and takes all its memory. Throws
  /// TemporaryError when there is not enough memory.
  static PartWriter create(const fs::path& path, const PartShape& shape,
                           std::string_view text);

  /// Empties the seal: until seal() the file does not count as a part.
  void open();
  /// Copies and hashes the tensors with this many threads. Returns false where state.json
  /// needs more bytes than are reserved for it.
  bool write(const std::vector<StateTensor>& tensors, const PartPlan& plan,
             std::string_view state, int threads);
  void seal(const PartLabel& label);

  /// Returns the bytes before the data that change from step to step, which messages
  /// carry to the other machine.
  std::span<std::byte> head() const;
  /// Returns the bytes of the data, which messages carry to the other machine.
  std::span<std::byte> data() const;
  /// Returns the bytes of the seal, which messages carry to the other machine.
  std::span<std::byte> seal_bytes() const;

 private:
  PartWriter(Mapping map, PartShape shape) : map_(std::move(map)), shape_(shape) {}
  std::byte* at(uint64_t offset) const { return map_.get() + offset; }
  Mapping map_;
  PartShape shape_;
  uint64_t state_bytes_ = 0;
};

/// Reads one rank's state. Immutable; any thread may call.
class PartReader {
 public:
  /// Opens a part and checks everything but the data. Throws InputError that says what is
  /// wrong.
  static PartReader open(const fs::path& path);

  const PartLabel& label() const { return label_; }
  std::string_view text() const;
  std::string_view state() const;
  std::span<const std::byte> data() const;
  /// Compares every block with its hash; throws InputError that names the first block
  /// that differs.
  void verify(int threads) const;

 private:
  MappedFile file_;
  PartLabel label_;
  PartShape shape_;
  uint64_t state_bytes_ = 0;
};

/// Returns the boxes that a part's text names, checked against the size of the part's
/// data.
std::vector<StoredBox> parse_part_text(std::string_view text, uint64_t data_bytes,
                                       const std::string& what);

}  // namespace longhaul::checkpoint
