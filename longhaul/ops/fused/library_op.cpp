#include "longhaul/ops/fused/library_op.h"

#include <c10/core/DispatchKey.h>
#include <c10/core/TensorOptions.h>
#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::ops {
namespace {

bool has_kernel(const c10::OperatorHandle& op, at::Device device) {
  const auto key = c10::computeDispatchKey(std::nullopt, std::nullopt, device);
  return op.hasKernelForDispatchKey(key);
}

}  // namespace

std::optional<c10::OperatorHandle> LibraryOp::find() const {
  return c10::Dispatcher::singleton().findSchema({name_, overload_});
}

std::string LibraryOp::full_name() const {
  return overload_.empty() ? name_ : name_ + "." + overload_;
}

std::string LibraryOp::obstacle(at::Device device,
                                const std::vector<std::string>& names) const {
  const auto op = find();
  if (!op) return fmt::format("this LibTorch has no {}", full_name());
  if (!has_kernel(*op, device)) {
    return fmt::format("{} has no kernel on {}", full_name(),
                       c10::DeviceTypeName(device.type(), /*lower_case=*/true));
  }
  const auto& arguments = op->schema().arguments();
  for (const std::string& name : names) {
    const bool there = std::any_of(arguments.begin(), arguments.end(),
                                   [&](const auto& a) { return a.name() == name; });
    if (!there) return fmt::format("{} takes no argument '{}'", full_name(), name);
  }
  for (const auto& argument : arguments) {
    const bool given =
        std::find(names.begin(), names.end(), argument.name()) != names.end();
    if (!given && !argument.default_value()) {
      return fmt::format("{} wants an argument '{}'", full_name(), argument.name());
    }
  }
  return {};
}

bool LibraryOp::serves(at::Device device, const std::vector<std::string>& names) const {
  return obstacle(device, names).empty();
}

std::vector<c10::IValue> LibraryOp::call(LibraryArguments arguments) const {
  const auto op = find();
  LH_ASSERT(op, "{} is called, but is not there", full_name());
  torch::jit::Stack stack;
  for (const auto& argument : op->schema().arguments()) {
    const auto given =
        std::find_if(arguments.begin(), arguments.end(),
                     [&](const auto& pair) { return pair.first == argument.name(); });
    stack.push_back(given == arguments.end() ? *argument.default_value()
                                             : std::move(given->second));
  }
  op->callBoxed(stack);
  return stack;
}

}  // namespace longhaul::ops
