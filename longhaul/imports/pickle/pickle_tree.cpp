#include "longhaul/imports/pickle/pickle_tree.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/format/safetensors.h"

namespace longhaul::imports {
namespace {

using Ref = PickleTree::Ref;

constexpr size_t kMaxPickledRank = 16;

bool has_text(PickleKind kind) {
  return kind == PickleKind::Text || kind == PickleKind::Bytes ||
         kind == PickleKind::BigInt || kind == PickleKind::Global;
}

bool has_items(PickleKind kind) {
  return kind == PickleKind::List || kind == PickleKind::Tuple ||
         kind == PickleKind::Dict || kind == PickleKind::Set;
}

class TreeWriter {
 public:
  explicit TreeWriter(std::string& out) : out_(out) {}
  template <typename T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out_.append(bytes, sizeof(T));
  }
  void text(std::string_view text) {
    number<uint64_t>(text.size());
    out_.append(text);
  }
  template <typename T>
  void numbers(const std::vector<T>& values) {
    number<uint64_t>(values.size());
    out_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }

 private:
  std::string& out_;
};

class TreeReader {
 public:
  TreeReader(std::string_view bytes, size_t position)
      : bytes_(bytes), position_(position) {}
  size_t position() const { return position_; }
  template <typename T>
  T number() {
    need(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }
  /// Reads a count of items of at least `each` bytes.
  size_t count(size_t each) {
    const auto n = number<uint64_t>();
    if (n > (bytes_.size() - position_) / each) fail();
    return static_cast<size_t>(n);
  }
  std::string text() {
    const size_t n = count(1);
    std::string text(bytes_.substr(position_, n));
    position_ += n;
    return text;
  }
  template <typename T>
  std::vector<T> numbers() {
    std::vector<T> values(count(sizeof(T)));
    if (!values.empty()) {
      std::memcpy(values.data(), bytes_.data() + position_, values.size() * sizeof(T));
    }
    position_ += values.size() * sizeof(T);
    return values;
  }
  [[noreturn]] void fail() const {
    fail_input("pickle", "byte {} of the reader's answer: not a tree", position_);
  }

 private:
  void need(size_t n) const {
    if (bytes_.size() - position_ < n) fail();
  }
  std::string_view bytes_;
  size_t position_;
};

}  // namespace

Ref PickleTree::add(PickleKind kind, int64_t payload) {
  nodes_.push_back({kind, 0, payload});
  return static_cast<Ref>(nodes_.size() - 1);
}

Ref PickleTree::add_float(double value) {
  return add(PickleKind::Float, std::bit_cast<int64_t>(value));
}

Ref PickleTree::add_text(PickleKind kind, std::string text) {
  texts_.push_back(std::move(text));
  const Ref ref = add(kind);
  nodes_[ref].extra = static_cast<uint32_t>(texts_.size() - 1);
  return ref;
}

Ref PickleTree::add_items(PickleKind kind, std::vector<Ref> items) {
  lists_.push_back(std::move(items));
  const Ref ref = add(kind);
  nodes_[ref].extra = static_cast<uint32_t>(lists_.size() - 1);
  return ref;
}

Ref PickleTree::add_object(Ref global, Ref arguments) {
  const Ref none = add(PickleKind::None);
  return add_items(PickleKind::Object, {global, arguments, none});
}

Ref PickleTree::add_tensor(PickleTensor tensor) {
  tensors.push_back(std::move(tensor));
  const Ref ref = add(PickleKind::Tensor);
  nodes_[ref].extra = static_cast<uint32_t>(tensors.size() - 1);
  return ref;
}

double PickleTree::real(Ref ref) const {
  const Node& node = nodes_[ref];
  if (node.kind == PickleKind::Int) return static_cast<double>(node.payload);
  LH_CHECK(node.kind == PickleKind::Float, "pickle", "{} is no number", describe(ref));
  return std::bit_cast<double>(node.payload);
}

const std::string& PickleTree::text(Ref ref) const {
  LH_CHECK(has_text(kind(ref)), "pickle", "{} is no text", describe(ref));
  return texts_[nodes_[ref].extra];
}

const std::vector<Ref>& PickleTree::items(Ref ref) const {
  LH_CHECK(has_items(kind(ref)), "pickle", "{} has no items", describe(ref));
  return lists_[nodes_[ref].extra];
}

std::vector<Ref>& PickleTree::items(Ref ref) {
  return const_cast<std::vector<Ref>&>(std::as_const(*this).items(ref));
}

std::vector<std::pair<Ref, Ref>> PickleTree::entries(Ref dict) const {
  const std::vector<Ref>& all = items(dict);
  std::vector<std::pair<Ref, Ref>> pairs;
  for (size_t i = 0; i + 1 < all.size(); i += 2) pairs.emplace_back(all[i], all[i + 1]);
  return pairs;
}

Ref PickleTree::object_part(Ref ref, size_t part) const {
  LH_CHECK(is(ref, PickleKind::Object), "pickle", "{} is no object", describe(ref));
  return lists_[nodes_[ref].extra][part];
}

const std::string& PickleTree::object_class(Ref ref) const {
  return text(object_part(ref, 0));
}

Ref PickleTree::object_arguments(Ref ref) const { return object_part(ref, 1); }
Ref PickleTree::object_state(Ref ref) const { return object_part(ref, 2); }

void PickleTree::set_object_state(Ref ref, Ref state) {
  LH_CHECK(is(ref, PickleKind::Object), "pickle", "{} is no object", describe(ref));
  lists_[nodes_[ref].extra][2] = state;
}

const PickleTensor& PickleTree::tensor(Ref ref) const {
  LH_CHECK(is(ref, PickleKind::Tensor), "pickle", "{} is no tensor", describe(ref));
  return tensors[nodes_[ref].extra];
}

uint32_t PickleTree::storage_index(Ref ref) const {
  LH_CHECK(is(ref, PickleKind::Storage), "pickle", "{} is no storage", describe(ref));
  return static_cast<uint32_t>(nodes_[ref].payload);
}

std::optional<Ref> PickleTree::find(Ref dict, std::string_view key) const {
  if (is(dict, PickleKind::Object)) dict = object_state(dict);
  if (!is(dict, PickleKind::Dict)) return std::nullopt;
  const std::vector<Ref>& pairs = items(dict);
  for (size_t i = pairs.size(); i >= 2; i -= 2) {
    if (is(pairs[i - 2], PickleKind::Text) && text(pairs[i - 2]) == key) {
      return pairs[i - 1];
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> PickleTree::as_text(Ref ref) const {
  if (!is(ref, PickleKind::Text)) return std::nullopt;
  return text(ref);
}

std::optional<int64_t> PickleTree::as_int(Ref ref) const {
  if (!is(ref, PickleKind::Int)) return std::nullopt;
  return integer(ref);
}

std::optional<std::vector<int64_t>> PickleTree::as_ints(Ref ref) const {
  if (!is(ref, PickleKind::List) && !is(ref, PickleKind::Tuple)) return std::nullopt;
  std::vector<int64_t> values;
  for (const Ref item : items(ref)) {
    if (!is(item, PickleKind::Int)) return std::nullopt;
    values.push_back(integer(item));
  }
  return values;
}

std::string PickleTree::describe(Ref ref) const {
  switch (kind(ref)) {
    case PickleKind::None:
      return "None";
    case PickleKind::Bool:
      return integer(ref) != 0 ? "True" : "False";
    case PickleKind::Int:
      return fmt::format("the number {}", integer(ref));
    case PickleKind::BigInt:
      return "a number of more than 64 bits";
    case PickleKind::Float:
      return fmt::format("the number {}", real(ref));
    case PickleKind::Text:
      return fmt::format("the text '{:.60}'", text(ref));
    case PickleKind::Bytes:
      return fmt::format("{} bytes", text(ref).size());
    case PickleKind::List:
      return fmt::format("a list of {}", items(ref).size());
    case PickleKind::Tuple:
      return fmt::format("a tuple of {}", items(ref).size());
    case PickleKind::Dict:
      return fmt::format("a dict with {} entries", items(ref).size() / 2);
    case PickleKind::Set:
      return fmt::format("a set of {}", items(ref).size());
    case PickleKind::Global:
      return fmt::format("the name {}", text(ref));
    case PickleKind::Object:
      return fmt::format("a {}", object_class(ref));
    case PickleKind::Storage:
      return "a storage";
    case PickleKind::Tensor:
      return "a tensor";
  }
  return "a value";
}

void PickleTree::serialise(std::string& out) const {
  TreeWriter writer(out);
  writer.number(root);
  writer.numbers(nodes_);
  writer.number<uint64_t>(texts_.size());
  for (const std::string& text : texts_) writer.text(text);
  writer.number<uint64_t>(lists_.size());
  for (const auto& list : lists_) writer.numbers(list);
  writer.number<uint64_t>(storages.size());
  for (const PickleStorage& storage : storages) {
    writer.text(storage.key);
    writer.number<int32_t>(storage.dtype ? static_cast<int32_t>(*storage.dtype) : -1);
    writer.number(storage.count);
    writer.number(storage.begin);
  }
  writer.number<uint64_t>(tensors.size());
  for (const PickleTensor& tensor : tensors) {
    writer.number(tensor.storage);
    writer.number<int32_t>(static_cast<int32_t>(tensor.dtype));
    writer.number(tensor.offset);
    writer.numbers(tensor.shape);
    writer.numbers(tensor.strides);
  }
}

PickleTree PickleTree::deserialise(std::string_view bytes, size_t& position) {
  TreeReader reader(bytes, position);
  const auto dtype_of = [&](int32_t value) {
    if (value < 0 || value > static_cast<int32_t>(format::DType::Bool)) reader.fail();
    return static_cast<format::DType>(value);
  };
  PickleTree tree;
  tree.root = reader.number<Ref>();
  tree.nodes_ = reader.numbers<Node>();
  tree.texts_.resize(reader.count(8));
  for (std::string& text : tree.texts_) text = reader.text();
  tree.lists_.resize(reader.count(8));
  for (auto& list : tree.lists_) list = reader.numbers<Ref>();
  tree.storages.resize(reader.count(28));
  for (PickleStorage& storage : tree.storages) {
    storage.key = reader.text();
    const auto dtype = reader.number<int32_t>();
    if (dtype != -1) storage.dtype = dtype_of(dtype);
    storage.count = reader.number<uint64_t>();
    storage.begin = reader.number<uint64_t>();
  }
  tree.tensors.resize(reader.count(32));
  for (PickleTensor& tensor : tree.tensors) {
    tensor.storage = reader.number<uint32_t>();
    tensor.dtype = dtype_of(reader.number<int32_t>());
    tensor.offset = reader.number<int64_t>();
    tensor.shape = reader.numbers<int64_t>();
    tensor.strides = reader.numbers<int64_t>();
  }
  position = reader.position();
  tree.check();
  return tree;
}

// Checks every index of a tree that came from outside.
void PickleTree::check() const {
  bool good = root < nodes_.size();
  for (const Node& node : nodes_) {
    good = good && node.kind <= PickleKind::Tensor;
    if (has_text(node.kind)) good = good && node.extra < texts_.size();
    if (has_items(node.kind) || node.kind == PickleKind::Object) {
      good = good && node.extra < lists_.size();
    }
    if (node.kind == PickleKind::Object) {
      good = good && lists_[node.extra].size() == 3 &&
             lists_[node.extra][0] < nodes_.size() &&
             nodes_[lists_[node.extra][0]].kind == PickleKind::Global;
    }
    if (node.kind == PickleKind::Dict) good = good && lists_[node.extra].size() % 2 == 0;
    if (node.kind == PickleKind::Tensor) good = good && node.extra < tensors.size();
    if (node.kind == PickleKind::Storage) {
      good = good && node.payload >= 0 &&
             static_cast<uint64_t>(node.payload) < storages.size();
    }
    if (!good) break;
  }
  for (const auto& list : lists_) {
    for (const Ref ref : list) good = good && ref < nodes_.size();
  }
  for (const PickleTensor& tensor : tensors) {
    good = good && tensor.storage < storages.size() &&
           tensor.shape.size() == tensor.strides.size();
  }
  if (!good) throw InputError("pickle", "the reader's answer is not a tree");
}

std::string problem_of(const PickleTensor& tensor, const PickleStorage& storage) {
  if (tensor.shape.size() > kMaxPickledRank ||
      tensor.shape.size() != tensor.strides.size()) {
    return fmt::format("a tensor with {} dims and {} strides", tensor.shape.size(),
                       tensor.strides.size());
  }
  uint64_t bytes = 0;
  if (!format::tensor_bytes(tensor.shape, tensor.dtype, &bytes)) {
    return "a tensor whose size does not fit 63 bits";
  }
  const uint64_t elements = storage.bytes() / format::dtype_size(tensor.dtype);
  if (tensor.offset < 0) return fmt::format("a tensor at offset {}", tensor.offset);
  if (bytes == 0) return {};
  if (bytes / format::dtype_size(tensor.dtype) > elements) {
    return fmt::format("a tensor of {} elements over a storage of {}",
                       bytes / format::dtype_size(tensor.dtype), elements);
  }
  auto last = static_cast<uint64_t>(tensor.offset);
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    if (tensor.strides[d] < 0) return "a tensor with a negative stride";
    uint64_t step = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(tensor.shape[d] - 1),
                               static_cast<uint64_t>(tensor.strides[d]), &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return "a tensor whose strides do not fit 64 bits";
    }
  }
  if (last >= elements) {
    return fmt::format("a tensor up to element {} of storage '{:.40}', which has {}",
                       last, storage.key, elements);
  }
  return {};
}

}  // namespace longhaul::imports
