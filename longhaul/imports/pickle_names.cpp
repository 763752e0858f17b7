#include "longhaul/imports/pickle_names.h"

#include <map>
#include <string>

namespace longhaul::imports {
namespace {

using Names = std::map<std::string, PickleName, std::less<>>;
using Role = PickleRole;

void add_torch_types(Names& names) {
  const auto storage = [&](const char* name, DType dtype) {
    names["torch." + std::string(name) + "Storage"] = {Role::Storage, dtype};
  };
  storage("Double", DType::F64);
  storage("Float", DType::F32);
  storage("Half", DType::F16);
  storage("BFloat16", DType::BF16);
  storage("Long", DType::I64);
  storage("Int", DType::I32);
  storage("Short", DType::I16);
  storage("Char", DType::I8);
  storage("Byte", DType::U8);
  storage("Bool", DType::Bool);
  names["torch.UntypedStorage"] = {Role::Storage, std::nullopt};
  names["torch.storage.UntypedStorage"] = {Role::Storage, std::nullopt};
  const auto dtype = [&](const char* name, DType type) {
    names["torch." + std::string(name)] = {Role::DType, type};
  };
  dtype("float64", DType::F64);
  dtype("double", DType::F64);
  dtype("float32", DType::F32);
  dtype("float", DType::F32);
  dtype("float16", DType::F16);
  dtype("half", DType::F16);
  dtype("bfloat16", DType::BF16);
  dtype("int64", DType::I64);
  dtype("long", DType::I64);
  dtype("int32", DType::I32);
  dtype("int", DType::I32);
  dtype("int16", DType::I16);
  dtype("int8", DType::I8);
  dtype("uint8", DType::U8);
  dtype("uint16", DType::U16);
  dtype("uint32", DType::U32);
  dtype("uint64", DType::U64);
  dtype("bool", DType::Bool);
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
    // Makers of a defaultdict's values, and bytes that may change.
    for (const char* type : {"list", "int", "float", "str", "bool", "bytearray"}) {
      names[module + std::string(type)] = {Role::Record, {}};
    }
  }
  add_torch_types(names);
  // What stands beside tensors in checkpoints and is kept as a record.
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
        // Tensors that lie in files of their own, by number.
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
