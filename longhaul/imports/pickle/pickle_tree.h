#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  std::optional<format::DType> dtype;  ///< nothing: untyped, `count` is bytes
  uint64_t count = 0;                  ///< elements
  uint64_t begin = 0;  ///< file offset of the first byte, set by read_torch_file
  uint64_t bytes() const { return count * (dtype ? format::dtype_size(*dtype) : 1); }
};

/// A view of a storage. Offset and strides are in elements; the view lies inside the
/// storage (checked when it was made).
struct PickleTensor {
  uint32_t storage = 0;  ///< index into PickleTree::storages
  format::DType dtype = format::DType::F32;
  int64_t offset = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

/// Returns what is wrong with a view that does not lie in its storage, or whose sizes
/// have a product that overflows. Returns an empty text for a valid view.
std::string problem_of(const PickleTensor& tensor, const PickleStorage& storage);

/// The content of a pickle as plain data. Values are named by Ref. Values may be shared
/// and, in a hostile file, contain themselves, so that whoever walks a tree counts depth
/// and visits.
class PickleTree {
 public:
  using Ref = uint32_t;

  Ref root = 0;
  std::vector<PickleStorage> storages;
  std::vector<PickleTensor> tensors;

  // Functions that make values.
  Ref add(PickleKind kind, int64_t payload = 0);
  Ref add_float(double value);
  Ref add_text(PickleKind kind, std::string text);
  Ref add_items(PickleKind kind, std::vector<Ref> items);
  Ref add_object(Ref global, Ref arguments);
  Ref add_tensor(PickleTensor tensor);

  // Functions that look at values. Each function checks that the value has one of the
  // kinds named behind it.
  PickleKind kind(Ref ref) const { return nodes_[ref].kind; }
  bool is(Ref ref, PickleKind kind) const { return nodes_[ref].kind == kind; }
  int64_t integer(Ref ref) const { return nodes_[ref].payload; }  ///< Int, Bool
  double real(Ref ref) const;                                     ///< Float, Int
  const std::string& text(Ref ref) const;        ///< Text, Bytes, BigInt, Global
  const std::vector<Ref>& items(Ref ref) const;  ///< List, Tuple, Set; Dict: k, v, k, v
  std::vector<Ref>& items(Ref ref);
  std::vector<std::pair<Ref, Ref>> entries(Ref dict) const;  ///< Dict: keys and values
  const std::string& object_class(Ref ref) const;            ///< "module.name"
  Ref object_arguments(Ref ref) const;
  Ref object_state(Ref ref) const;
  void set_object_state(Ref ref, Ref state);
  const PickleTensor& tensor(Ref ref) const;
  uint32_t storage_index(Ref ref) const;

  /// Returns the value under a text key of a dict or of an object's state. The last entry
  /// of a key counts.
  std::optional<Ref> find(Ref dict, std::string_view key) const;
  /// Returns the text of a Text node, else nothing.
  std::optional<std::string_view> as_text(Ref ref) const;
  std::optional<int64_t> as_int(Ref ref) const;
  /// Returns the numbers of a list or tuple (torch.Size), if all are whole numbers.
  std::optional<std::vector<int64_t>> as_ints(Ref ref) const;
  /// Describes a value for messages: "a dict with 3 entries", "the number 7".
  std::string describe(Ref ref) const;
  size_t size() const { return nodes_.size(); }

  /// Appends the tree as bytes, for another process of this program on this machine.
  void serialise(std::string& out) const;
  /// Reads a tree at `position`, which moves past the tree. Throws InputError if `bytes`
  /// hold no tree there.
  static PickleTree deserialise(std::string_view bytes, size_t& position);

 private:
  struct Node {
    PickleKind kind;
    uint32_t extra;   // index into texts_, lists_, tensors or storages
    int64_t payload;  // Int, Bool; the bits of a Float
  };
  void check() const;
  Ref object_part(Ref ref, size_t part) const;  // class, arguments, state

  std::vector<Node> nodes_;
  std::vector<std::string> texts_;
  std::vector<std::vector<Ref>> lists_;
};

}  // namespace longhaul::imports
