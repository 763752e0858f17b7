#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhaul/imports/foreign_files.h"
#include "longhaul/imports/mosaic.h"

namespace longhaul::imports {

/// Tensors by name, in the order in which the file lists them.
using NamedTensors = std::vector<std::pair<std::string, Mosaic>>;

/// A torch file that was read as data. Its tensors lie in the file or, in the form of
/// torch_xla's serialization ("xser"), each in a file FILE.tensors/tensor_N.pt.
class ForeignState {
 public:
  using Ref = PickleTree::Ref;
  static ForeignState open(ForeignFiles& files, const fs::path& path);
  /// Takes the tree of a torch file that was read already.
  ForeignState(PickleTree tree, size_t file) : tree_(std::move(tree)), file_(file) {}

  const PickleTree& tree() const { return tree_; }
  Ref root() const { return tree_.root; }
  size_t file() const { return file_; }
  bool xser() const { return !referenced_.empty(); }
  /// Returns the tensor, or nothing if the value is neither a tensor nor a reference to
  /// one.
  std::optional<StoredTensor> tensor(Ref ref) const;
  /// Returns the dict under `key`, or nothing.
  std::optional<Ref> dict(Ref parent, std::string_view key) const;
  /// Returns the tensors of a dict by name; `others` receives the keys of other values.
  /// Throws InputError that names `what` for a key that is no text or comes twice, and
  /// for a value that holds a tensor deeper down.
  NamedTensors tensors(Ref dict, const std::string& what,
                       std::vector<std::string>* others = nullptr) const;
  /// Returns a number that stands in the pickle or in a tensor of one element.
  std::optional<double> number(const ForeignFiles& files, Ref ref) const;

 private:
  void open_references(ForeignFiles& files, const fs::path& dir);

  PickleTree tree_;
  size_t file_ = 0;
  std::map<int64_t, StoredTensor> referenced_;
};

/// Returns the number of an xser reference, or nothing for any other value.
std::optional<int64_t> reference_number(const PickleTree& tree, PickleTree::Ref ref);

/// Visits every value below `root` once, also inside of containers and objects. Throws
/// InputError beyond a depth of 64, which no checkpoint reaches.
void visit_values(const PickleTree& tree, PickleTree::Ref root, const std::string& what,
                  const std::function<void(PickleTree::Ref)>& visit);

}  // namespace longhaul::imports
