#include "longhaul/imports/foreign_state.h"

#include <fmt/format.h>

#include <set>

#include "longhaul/base/error.h"

namespace longhaul::imports {
namespace {

using Ref = PickleTree::Ref;
using Kind = PickleKind;

constexpr int kMaxDepth = 64;

StoredTensor stored_tensor(const PickleTree& tree, Ref ref, size_t file) {
  const PickleTensor& tensor = tree.tensor(ref);
  const PickleStorage& storage = tree.storages[tensor.storage];
  StoredTensor stored;
  stored.file = file;
  stored.begin = storage.begin +
                 static_cast<uint64_t>(tensor.offset) * format::dtype_size(tensor.dtype);
  stored.dtype = tensor.dtype;
  stored.shape = tensor.shape;
  stored.strides = tensor.strides;
  return stored;
}

}  // namespace

std::optional<int64_t> reference_number(const PickleTree& tree, Ref ref) {
  if (!tree.is(ref, Kind::Object) ||
      !tree.object_class(ref).ends_with("TensorReference")) {
    return std::nullopt;
  }
  const auto number = tree.find(ref, "tid");
  if (!number) return std::nullopt;
  return tree.as_int(*number);
}

void visit_values(const PickleTree& tree, Ref root, const std::string& what,
                  const std::function<void(Ref)>& visit) {
  std::vector<bool> seen(tree.size(), false);
  const std::function<void(Ref, int)> go = [&](Ref ref, int depth) {
    if (seen[ref]) return;
    seen[ref] = true;
    if (depth > kMaxDepth) {
      fail_input("import",
                 "{}: values nested more than {} deep; not a checkpoint that can be read",
                 what, kMaxDepth);
    }
    visit(ref);
    switch (tree.kind(ref)) {
      case Kind::List:
      case Kind::Tuple:
      case Kind::Set:
      case Kind::Dict:
        for (const Ref item : tree.items(ref)) go(item, depth + 1);
        return;
      case Kind::Object:
        go(tree.object_arguments(ref), depth + 1);
        go(tree.object_state(ref), depth + 1);
        return;
      default:
        return;
    }
  };
  go(root, 0);
}

ForeignState ForeignState::open(ForeignFiles& files, const fs::path& path) {
  const size_t file = files.add(path);
  std::vector<PickleTree> trees = files.read_trees({files.whole(file)});
  ForeignState state(std::move(trees.front()), file);
  state.open_references(files, path.string() + ".tensors");
  return state;
}

void ForeignState::open_references(ForeignFiles& files, const fs::path& dir) {
  const std::string what = files.path(file_).string();
  std::set<int64_t> numbers;
  visit_values(tree_, root(), what, [&](Ref ref) {
    if (!tree_.is(ref, Kind::Object)) return;
    if (const auto number = reference_number(tree_, ref)) numbers.insert(*number);
  });
  std::vector<TorchPart> parts;
  for (const int64_t number : numbers) {
    if (number < 0) {
      fail_input("import", "{}: there is no tensor number {}", what, number);
    }
    parts.push_back(files.whole(files.add(dir / fmt::format("tensor_{}.pt", number))));
  }
  const std::vector<PickleTree> trees = files.read_trees(parts);
  size_t i = 0;
  for (const int64_t number : numbers) {
    const PickleTree& tree = trees[i];
    if (!tree.is(tree.root, Kind::Tensor)) {
      fail_input("import", "{}: holds {}, not a tensor",
                 files.path(parts[i].file).string(), tree.describe(tree.root));
    }
    referenced_[number] = stored_tensor(tree, tree.root, parts[i].file);
    ++i;
  }
}

std::optional<StoredTensor> ForeignState::tensor(Ref ref) const {
  if (tree_.is(ref, Kind::Tensor)) return stored_tensor(tree_, ref, file_);
  const auto number = reference_number(tree_, ref);
  if (!number) return std::nullopt;
  const auto found = referenced_.find(*number);
  if (found == referenced_.end()) return std::nullopt;
  return found->second;
}

std::optional<Ref> ForeignState::dict(Ref parent, std::string_view key) const {
  const auto found = tree_.find(parent, key);
  if (!found || !tree_.is(*found, Kind::Dict)) return std::nullopt;
  return found;
}

NamedTensors ForeignState::tensors(Ref dict, const std::string& what,
                                   std::vector<std::string>* others) const {
  if (!tree_.is(dict, Kind::Dict)) {
    fail_input("import", "{}: holds {}, not a dict of tensors", what,
               tree_.describe(dict));
  }
  NamedTensors result;
  std::set<std::string> names;
  for (const auto& [name_ref, value] : tree_.entries(dict)) {
    const auto key = tree_.as_text(name_ref);
    if (!key) {
      fail_input("import", "{}: {} is a key where the name of a tensor is expected", what,
                 tree_.describe(name_ref));
    }
    const std::string name(*key);
    const auto stored = tensor(value);
    if (!stored) {
      visit_values(tree_, value, what, [&](Ref ref) {
        if (tensor(ref)) {
          fail_input("import",
                     "{}: '{:.80}' is not a tensor but holds tensors; this is not a "
                     "known form of state dict",
                     what, name);
        }
      });
      if (others != nullptr) others->push_back(name);
      continue;
    }
    if (!names.insert(name).second) {
      fail_input("import", "{}: '{:.80}' comes twice", what, name);
    }
    result.emplace_back(name, Mosaic(*stored));
  }
  return result;
}

std::optional<double> ForeignState::number(const ForeignFiles& files, Ref ref) const {
  if (tree_.is(ref, Kind::Int) || tree_.is(ref, Kind::Float)) return tree_.real(ref);
  const auto stored = tensor(ref);
  if (!stored) return std::nullopt;
  const Mosaic mosaic(*stored);
  if (mosaic.num_elements() != 1) return std::nullopt;
  const auto read = [&](auto value, format::DType as) {
    mosaic.read_all(files, as, std::as_writable_bytes(std::span(&value, 1)));
    return static_cast<double>(value);
  };
  if (format::is_float(stored->dtype)) return read(double{}, format::DType::F64);
  if (stored->dtype == format::DType::I32) return read(int32_t{}, stored->dtype);
  if (stored->dtype == format::DType::I64) return read(int64_t{}, stored->dtype);
  return std::nullopt;
}

}  // namespace longhaul::imports
