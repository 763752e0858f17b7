#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace longhaul::ops {

/// Arguments and their names. at::Tensor() stands for an undefined tensor.
using LibraryArguments = std::vector<std::pair<std::string, c10::IValue>>;

/// An operator of LibTorch that some devices have kernels for. The operator is found by
/// its name at run time and called by the names of its arguments, because versions of
/// LibTorch add arguments, and a device that is loaded later brings kernels.
class LibraryOp {
 public:
  /// Names an operator, such as "aten::mm", and its overload, such as "dtype_out" or an
  /// empty text. `arguments` lists the names of all arguments that call() gets, separated
  /// by spaces.
  LibraryOp(std::string name, std::string overload, const std::string& arguments);

  /// Returns whether there is a kernel for tensors on `device`, and the operator takes
  /// all arguments that it is given and needs no other.
  bool serves(at::Device device) const { return obstacle(device).empty(); }
  /// Returns why serves() returns false, such as "no kernel on cuda" or "it takes no
  /// argument 'scale'"; empty if serves() returns true.
  std::string obstacle(at::Device device) const;
  /// Calls the operator, for which serves() must have returned true. An argument that is
  /// not given has the operator's default. Returns the results in the order of the
  /// schema.
  std::vector<c10::IValue> call(LibraryArguments arguments) const;

 private:
  std::optional<c10::OperatorHandle> find() const;
  std::string full_name() const;

  std::string name_, overload_;
  std::vector<std::string> arguments_;
};

/// Returns why the device lacks one of two operators; empty if it has both.
std::string obstacle_of(at::Device device, const LibraryOp& one, const LibraryOp& other);

}  // namespace longhaul::ops
