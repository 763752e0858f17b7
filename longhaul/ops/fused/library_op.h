#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace longhaul::ops {

/// Arguments by name. An undefined tensor is given as at::Tensor().
using LibraryArguments = std::vector<std::pair<std::string, c10::IValue>>;

/// An operator of LibTorch that some devices have kernels for, found by its name at run
/// time and called by its arguments' names: versions of LibTorch add arguments, and a
/// device that is loaded later brings kernels.
class LibraryOp {
 public:
  /// `name`: "aten::mm"; `overload`: "dtype_out", or empty.
  LibraryOp(std::string name, std::string overload)
      : name_(std::move(name)), overload_(std::move(overload)) {}

  /// There is a kernel for tensors on `device`, and the operator takes all arguments that
  /// `names` lists and needs no other.
  bool serves(at::Device device, const std::vector<std::string>& names) const;
  /// Why serves() says no, or empty: "no kernel on cuda", "it takes no argument 'scale'".
  std::string obstacle(at::Device device, const std::vector<std::string>& names) const;
  /// Calls it where serves() said yes; what is not given has the operator's default. The
  /// results in the order of the schema.
  std::vector<c10::IValue> call(LibraryArguments arguments) const;

 private:
  std::optional<c10::OperatorHandle> find() const;
  std::string full_name() const;

  std::string name_, overload_;
};

}  // namespace longhaul::ops
