#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/format/dtype.h"

namespace longhaul::imports {

enum class PickleKind : uint8_t {
  None,
  Bool,
  Int,
  BigInt,  ///< more than 64 bits; only its bytes are kept
  Float,
  Text,
  Bytes,
  List,
  Tuple,
  Dict,
  Set,
  Global,   ///< a known name: a dtype, a storage type, a class
  Object,   ///< an instance of a known class, inert: class, arguments, state
  Storage,  ///< where a file keeps elements
  Tensor,
};

/// Elements that a torch file keeps in one run of bytes.
struct PickleStorage {
  std::string key;
  std::optional<DType> dtype;  ///< nothing: untyped, `count` is bytes
  uint64_t count = 0;          ///< elements
  uint64_t begin = 0;          ///< file offset of the first byte; set by read_torch_file
  uint64_t bytes() const { return count * (dtype ? dtype_size(*dtype) : 1); }
};

/// A view of a storage. Offset and strides are in elements; the view lies inside the
/// storage (checked when it was made).
struct PickleTensor {
  uint32_t storage = 0;  ///< index into PickleTree::storages
  DType dtype = DType::F32;
  int64_t offset = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

/// Checks that a view lies in its storage and that its sizes can be multiplied.
/// Returns what is wrong, or an empty text.
std::string problem_of(const PickleTensor& tensor, const PickleStorage& storage);

/// What a pickle says, as plain data. Values are named by Ref and may be shared or, in a
/// hostile file, contain themselves: who walks a tree counts depth and visits.
class PickleTree {
 public:
  using Ref = uint32_t;

  Ref root = 0;
  std::vector<PickleStorage> storages;
  std::vector<PickleTensor> tensors;

  // Making values.
  Ref add(PickleKind kind, int64_t payload = 0);
  Ref add_float(double value);
  Ref add_text(PickleKind kind, std::string text);
  Ref add_items(PickleKind kind, std::vector<Ref> items);
  Ref add_object(Ref global, Ref arguments);
  Ref add_tensor(PickleTensor tensor);

  // Looking at them. Each is for its own kinds; LH_CHECK otherwise.
  PickleKind kind(Ref ref) const { return nodes_[ref].kind; }
  bool is(Ref ref, PickleKind kind) const { return nodes_[ref].kind == kind; }
  int64_t integer(Ref ref) const { return nodes_[ref].payload; }  ///< Int, Bool
  double real(Ref ref) const;                                     ///< Float, Int
  const std::string& text(Ref ref) const;        ///< Text, Bytes, BigInt, Global
  const std::vector<Ref>& items(Ref ref) const;  ///< List, Tuple, Set; Dict: k, v, k, v
  std::vector<Ref>& items(Ref ref);
  const std::string& object_class(Ref ref) const;  ///< "module.name"
  Ref object_arguments(Ref ref) const;
  Ref object_state(Ref ref) const;
  void set_object_state(Ref ref, Ref state);
  const PickleTensor& tensor(Ref ref) const;
  uint32_t storage_index(Ref ref) const;

  /// A dict's (or an object's state's) value under a text key; the last one counts.
  std::optional<Ref> find(Ref dict, std::string_view key) const;
  /// Text of a Text node, else nothing.
  std::optional<std::string_view> as_text(Ref ref) const;
  std::optional<int64_t> as_int(Ref ref) const;
  /// A list or tuple (torch.Size) of whole numbers.
  std::optional<std::vector<int64_t>> as_ints(Ref ref) const;
  /// "a dict with 3 entries", "the number 7": for messages.
  std::string describe(Ref ref) const;
  size_t size() const { return nodes_.size(); }

  /// As bytes, for another process of this program on this machine.
  void serialise(std::string& out) const;
  /// InputError when `bytes` are no such tree; `position` moves past it.
  static PickleTree deserialise(std::string_view bytes, size_t& position);

 private:
  struct Node {
    PickleKind kind;
    uint32_t extra;   // index into texts_, lists_, tensors or storages
    int64_t payload;  // Int, Bool; the bits of a Float
  };
  void check() const;

  std::vector<Node> nodes_;
  std::vector<std::string> texts_;
  std::vector<std::vector<Ref>> lists_;
};

}  // namespace longhaul::imports
