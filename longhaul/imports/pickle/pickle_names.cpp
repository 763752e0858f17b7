#include "longhaul/imports/pickle/pickle_names.h"

#include <map>
#include <string>

#include "longhaul/base/text.h"

namespace longhaul::imports {
namespace {

using Names = std::map<std::string, PickleName, std::less<>>;
using Role = PickleRole;

/// A dtype with the name of its type of storage, where torch has one, and its own names.
struct TorchType {
  format::DType dtype;
  const char* storage;
  const char* names;
};

constexpr TorchType kTorchTypes[] = {{format::DType::F64, "Double", "float64 double"},
                                     {format::DType::F32, "Float", "float32 float"},
                                     {format::DType::F16, "Half", "float16 half"},
                                     {format::DType::BF16, "BFloat16", "bfloat16"},
                                     {format::DType::I64, "Long", "int64 long"},
                                     {format::DType::I32, "Int", "int32 int"},
                                     {format::DType::I16, "Short", "int16"},
                                     {format::DType::I8, "Char", "int8"},
                                     {format::DType::U8, "Byte", "uint8"},
                                     {format::DType::U16, "", "uint16"},
                                     {format::DType::U32, "", "uint32"},
                                     {format::DType::U64, "", "uint64"},
                                     {format::DType::Bool, "Bool", "bool"}};

void add_torch_types(Names& names) {
  for (const auto& [dtype, storage, own] : kTorchTypes) {
    for (const std::string& name : split_words(own)) {
      names["torch." + name] = {Role::DType, dtype};
    }
    if (*storage == '\0') continue;
    names["torch." + std::string(storage) + "Storage"] = {Role::Storage, dtype};
  }
  names["torch.UntypedStorage"] = {Role::Storage, std::nullopt};
  names["torch.storage.UntypedStorage"] = {Role::Storage, std::nullopt};
}

Names make_names() {
  Names names = {
      {"torch._utils._rebuild_tensor", {Role::RebuildTensor, {}}},
      {"torch._utils._rebuild_tensor_v2", {Role::RebuildTensor, {}}},
      {"torch._utils._rebuild_tensor_v3", {Role::RebuildTensorAs, {}}},
      {"torch._utils._rebuild_parameter", {Role::RebuildParameter, {}}},
      {"torch._utils._rebuild_parameter_with_state", {Role::RebuildParameter, {}}},
      {"torch._tensor._rebuild_from_type_v2", {Role::RebuildTyped, {}}},
      {"torch.Tensor", {Role::Record, {}}},
      {"torch.nn.parameter.Parameter", {Role::Record, {}}},
      {"collections.OrderedDict", {Role::Dict, {}}},
      {"collections.defaultdict", {Role::DefaultDict, {}}},
      {"torch.Size", {Role::Tuple, {}}},
      {"_codecs.encode", {Role::Encode, {}}},
  };
  for (const char* module : {"builtins.", "__builtin__."}) {
    names[module + std::string("getattr")] = {Role::EnumMember, {}};
    names[module + std::string("dict")] = {Role::Dict, {}};
    names[module + std::string("set")] = {Role::Set, {}};
    names[module + std::string("frozenset")] = {Role::Set, {}};
    // Functions that make a defaultdict's values, and mutable bytes.
    for (const char* type : {"list", "int", "float", "str", "bool", "bytearray"}) {
      names[module + std::string(type)] = {Role::Record, {}};
    }
  }
  add_torch_types(names);
  // Names of objects beside tensors in checkpoints, which are kept as records.
  const char* const dcp = "torch.distributed.checkpoint.metadata.";
  for (const char* name : {"Metadata", "TensorStorageMetadata", "BytesStorageMetadata",
                           "ChunkStorageMetadata", "TensorProperties", "MetadataIndex",
                           "StorageMeta", "_MEM_FORMAT_ENCODING"}) {
    names[std::string(dcp) + name] = {Role::Record, {}};
  }
  for (const char* name :
       {"torch.distributed.checkpoint.filesystem._StorageInfo",
        "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
        "torch.serialization._get_layout", "torch.device",
        // References to tensors in files of their own, by number.
        "torch_xla.utils.serialization.TensorReference",
        "neuronx_distributed.trainer.checkpoint._InternalTensorReference",
        "argparse.Namespace", "pathlib.PosixPath", "pathlib._local.PosixPath",
        "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar",
        "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct",
        "numpy.dtype", "numpy.ndarray"}) {
    names[name] = {Role::Record, {}};
  }
  names[std::string(dcp) + "_MEM_FORMAT_ENCODING"] = {Role::Enumeration, {}};
  names["torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING"] = {
      Role::Enumeration, {}};
  return names;
}

}  // namespace

std::optional<PickleName> known_pickle_name(std::string_view name) {
  static const Names names = make_names();
  const auto found = names.find(name);
  if (found == names.end()) return std::nullopt;
  return found->second;
}

}  // namespace longhaul::imports
