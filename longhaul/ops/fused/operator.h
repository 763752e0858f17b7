#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/TensorOptions.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <string>
#include <type_traits>

#include "longhaul/base/error.h"

// Longhaul's operators in LibTorch's dispatcher. The type of an operator is its only
// declaration: the name, and the name and type of each argument. The schema, the
// registration of a device's kernel and the call follow from it.

namespace longhaul::ops::fused {

/// A text as a template argument.
template <size_t kSize>
struct Text {
  constexpr Text(const char (&text)[kSize]) { std::ranges::copy(text, chars.begin()); }

  template <size_t kOther>
  constexpr Text<kSize + kOther - 1> operator+(const Text<kOther>& other) const {
    char joined[kSize + kOther - 1] = {};
    std::ranges::copy(other.chars, std::ranges::copy(chars, joined).out - 1);
    return joined;
  }

  std::array<char, kSize> chars{};
};

/// How an argument of type T passes the dispatcher. `kSchema` is the type in a schema,
/// Type is the C++ type that LibTorch takes for the schema's type, and pack() and
/// unpack() convert between T and Type.
template <typename T>
struct Wire;

template <typename T, Text kName, typename Passed = T>
struct Unchanged {
  static constexpr auto kSchema = kName;
  using Type = Passed;
  static const T& pack(const T& value) { return value; }
  static const T& unpack(const T& value) { return value; }
};

template <>
struct Wire<at::Tensor> : Unchanged<at::Tensor, "Tensor", const at::Tensor&> {};
template <>
struct Wire<bool> : Unchanged<bool, "bool"> {};
template <>
struct Wire<double> : Unchanged<double, "float"> {};
template <>
struct Wire<int64_t> : Unchanged<int64_t, "int"> {};
template <>
struct Wire<at::TensorList> : Unchanged<at::TensorList, "Tensor[]"> {};
template <>
struct Wire<at::IntArrayRef> : Unchanged<at::IntArrayRef, "int[]"> {};

template <typename T>
  requires std::is_enum_v<T>
struct Wire<T> {
  static constexpr Text kSchema = "int";
  using Type = int64_t;
  static int64_t pack(T value) { return static_cast<int64_t>(value); }
  static T unpack(int64_t value) { return static_cast<T>(value); }
};

/// The Wire of a struct T whose members all have the type Number: a list of numbers in
/// the order of the members.
template <typename T, typename Number>
struct WireOfNumbers {
  static constexpr Text kSchema = "float[]";
  using Type = c10::ArrayRef<double>;
  static constexpr size_t kCount = sizeof(T) / sizeof(Number);
  using Members = std::array<Number, kCount>;

  static std::array<double, kCount> pack(const T& value) {
    std::array<double, kCount> list;
    std::ranges::copy(std::bit_cast<Members>(value), list.begin());
    return list;
  }
  static T unpack(Type list) {
    Members members{};
    LH_ASSERT(list.size() == kCount, "{} numbers instead of {}", list.size(), kCount);
    std::ranges::transform(list, members.begin(),
                           [](double x) { return static_cast<Number>(x); });
    return std::bit_cast<T>(members);
  }
};

/// An argument of an operator. With kWritten it is a tensor to which the operator writes.
template <typename T, Text kName, bool kWritten = false>
struct Argument {
  using Type = T;

  /// Returns the argument's part of the schema: "Tensor x", or "Tensor(a!) y", where each
  /// written tensor has a letter of its own.
  static std::string declared(char& letter) {
    std::string type = Wire<T>::kSchema.chars.data();
    if (kWritten) type += std::string("(") + letter++ + "!)";
    return type + " " + kName.chars.data();
  }
};
template <Text kName>
using In = Argument<at::Tensor, kName>;
template <Text kName>
using Out = Argument<at::Tensor, kName, true>;

/// Returns the first tensor among the arguments of an operator, lists of tensors aside:
/// the operator runs on the device of this tensor.
template <typename First, typename... Rest>
const at::Tensor& first_tensor(const First& first, const Rest&... rest) {
  if constexpr (std::is_same_v<First, at::Tensor>) {
    return first;
  } else {
    return first_tensor(rest...);
  }
}

/// An operator "longhaul::NAME" without a result, whose arguments are A. Each device has
/// one kernel for the operator, or none. The operator lies below autograd: the
/// differentiable functions of ops are nodes of their own.
template <Text kName, typename... A>
struct Operator {
  static constexpr auto kFullName = Text("longhaul::") + kName;

  static std::string schema() {
    std::string arguments;
    char letter = 'a';
    ((arguments += (arguments.empty() ? "" : ", ") + A::declared(letter)), ...);
    return std::string(kName.chars.data()) + "(" + arguments + ") -> ()";
  }

  /// Makes `kernel`, a function object without state that takes the arguments, the kernel
  /// of the library's device.
  template <typename Kernel>
  static void implement(torch::Library& library, const Kernel& /*kernel*/) {
    library.impl(kName.chars.data(),
                 [](typename Wire<typename A::Type>::Type... arguments) {
                   Kernel{}(Wire<typename A::Type>::unpack(arguments)...);
                 });
  }

  /// Returns whether the device, or that of `x`, has a kernel.
  bool serves(at::Device device) const {
    return handle().hasKernelForDispatchKey(key_of(device));
  }
  bool serves(const at::Tensor& x) const { return serves(x.device()); }

  /// Runs the kernel of the device of first_tensor(arguments...).
  void operator()(const typename A::Type&... arguments) const {
    RECORD_FUNCTION(kFullName.chars.data(), {});
    handle().redispatch(c10::DispatchKeySet(key_of(first_tensor(arguments...).device())),
                        Wire<typename A::Type>::pack(arguments)...);
  }

 private:
  static c10::DispatchKey key_of(at::Device device) {
    return c10::computeDispatchKey(std::nullopt, std::nullopt, device);
  }
  /// Returns the dispatcher's handle, which is found once, after the operator was
  /// declared.
  static const auto& handle() {
    static const auto found =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow(kFullName.chars.data(), "")
            .template typed<void(typename Wire<typename A::Type>::Type...)>();
    return found;
  }
};

/// Declares operators in `library`.
template <typename... Operators>
void declare(torch::Library& library, const Operators&... operators) {
  (library.def(operators.schema().c_str()), ...);
}

}  // namespace longhaul::ops::fused
