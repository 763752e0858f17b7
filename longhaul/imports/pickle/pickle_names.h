#pragma once

#include <optional>
#include <string_view>

#include "longhaul/format/dtype.h"

namespace longhaul::imports {

/// What a name in a pickle stands for. No name stands for code: a role is a rule of our
/// own for one of the few kinds of values that checkpoints are made of.
enum class PickleRole {
  RebuildTensor,     ///< storage, offset, shape, strides, ...
  RebuildTensorAs,   ///< an untyped storage, offset, shape, strides, ..., and a dtype
  RebuildParameter,  ///< a tensor, and further values that are ignored
  RebuildTyped,  ///< a rebuilding of the three above, its class, arguments, attributes
  Dict,
  DefaultDict,  ///< the first argument is a maker of values
  Tuple,        ///< torch.Size
  Set,
  Encode,      ///< bytes written as text
  EnumMember,  ///< getattr(an enumeration, a name), as some Pythons write its members
  Storage,     ///< a type of storage, which is untyped if `dtype` is absent
  DType,
  Enumeration,  ///< a class that only EnumMember and a record may be made of
  Record,       ///< an object that is kept as class, arguments and state
};

struct PickleName {
  PickleRole role = PickleRole::Record;
  std::optional<longhaul::format::DType> dtype;  ///< given for Storage and DType
};

/// Returns what a name ("module.name") stands for, or nothing if the name is not on the
/// list and the pickle is refused.
std::optional<PickleName> known_pickle_name(std::string_view name);

}  // namespace longhaul::imports
