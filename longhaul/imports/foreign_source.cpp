#include "longhaul/imports/foreign_source.h"

#include "longhaul/base/error.h"
#include "longhaul/format/side_files.h"

namespace longhaul::imports {

ForeignSource::ForeignSource(const ForeignModel& model,
                             const std::map<std::string, Mosaic>& tensors)
    : model_(model), tensors_(tensors) {
  source_.kind = checkpoint::ModelSource::Kind::HfDirectory;
  source_.path = model.path;
}

std::vector<format::TensorSlice> ForeignSource::tensors() const {
  std::vector<format::TensorSlice> result;
  for (const auto& [name, tensor] : tensors_) {
    result.push_back(format::TensorSlice::whole(name, tensor.shape(), tensor.dtype()));
  }
  return result;
}

void ForeignSource::read(const format::TensorSlice& box, format::DType dst,
                         std::span<std::byte> out) const {
  const auto found = tensors_.find(box.name);
  if (found == tensors_.end() || found->second.shape() != box.global_shape) {
    fail_input("import", "{}: no tensor '{}' of shape {}", model_.path.string(), box.name,
               format::describe_shape(box.global_shape));
  }
  found->second.read(*model_.files, box.offset, box.extent, dst, out);
}

const checkpoint::StoredTensors& ForeignSource::stored() const {
  throw Error(
      ErrorKind::Internal, "import",
      model_.path.string() + ": a foreign checkpoint is imported, not read in place");
}

std::vector<checkpoint::CarriedFile> ForeignSource::files_to_carry() const {
  std::vector<checkpoint::CarriedFile> files;
  if (model_.config.side_dir.empty()) {
    files.push_back({"config.json", model_.config.path, {}});
    return files;
  }
  format::check_side_files(model_.config.side_dir);
  for (const std::string& name : format::hf_side_files(model_.config.side_dir)) {
    files.push_back({name, model_.config.side_dir / name, {}});
  }
  return files;
}

}  // namespace longhaul::imports
