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

/// One torch file, read as data. Its tensors lie in the file, or, in the form of
/// torch_xla's serialization ("xser"), one by one in FILE.tensors/tensor_N.pt.
class ForeignState {
 public:
  using Ref = PickleTree::Ref;
  static ForeignState open(ForeignFiles& files, const fs::path& path);
  /// The tree of a part that was read already.
  ForeignState(PickleTree tree, size_t file) : tree_(std::move(tree)), file_(file) {}

  const PickleTree& tree() const { return tree_; }
  Ref root() const { return tree_.root; }
  size_t file() const { return file_; }
  bool xser() const { return !referenced_.empty(); }
  /// Nothing when the value is no tensor (nor a reference to one).
  std::optional<StoredTensor> tensor(Ref ref) const;
  /// The dict under `key`, or nothing.
  std::optional<Ref> dict(Ref parent, std::string_view key) const;
  /// The entries of a dict: tensors by name; `others` receives the keys of what is none
  /// (null and empty values are passed over). InputError names `what` for a key that is
  /// no text, comes twice, or a value that holds a tensor deeper down.
  NamedTensors tensors(Ref dict, const std::string& what,
                       std::vector<std::string>* others = nullptr) const;
  /// A number, whether it stands in the pickle or in a tensor of one element.
  std::optional<double> number(const ForeignFiles& files, Ref ref) const;

 private:
  void open_references(ForeignFiles& files, const fs::path& dir);

  PickleTree tree_;
  size_t file_ = 0;
  std::map<int64_t, StoredTensor> referenced_;
};

/// The number of an xser reference; nothing for any other value.
std::optional<int64_t> reference_number(const PickleTree& tree, PickleTree::Ref ref);

/// Every value below `root` once, containers and objects entered. InputError past a depth
/// of 64: no checkpoint is that deep.
void visit_values(const PickleTree& tree, PickleTree::Ref root, const std::string& what,
                  const std::function<void(PickleTree::Ref)>& visit);

}  // namespace longhaul::imports
