#include "longhaul/ops/fused/library_op.h"

#include <c10/core/DispatchKey.h>
#include <c10/core/TensorOptions.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "longhaul/base/error.h"

namespace longhaul::ops {
namespace {

bool has_kernel(const c10::OperatorHandle& op, at::Device device) {
  const auto key = c10::computeDispatchKey(std::nullopt, std::nullopt, device);
  return op.hasKernelForDispatchKey(key);
}

}  // namespace

LibraryOp::LibraryOp(std::string name, std::string overload, const std::string& arguments)
    : name_(std::move(name)), overload_(std::move(overload)) {
  std::istringstream names(arguments);
  arguments_.assign(std::istream_iterator<std::string>(names), {});
}

std::optional<c10::OperatorHandle> LibraryOp::find() const {
  return c10::Dispatcher::singleton().findSchema({name_, overload_});
}

std::string LibraryOp::full_name() const {
  return overload_.empty() ? name_ : name_ + "." + overload_;
}

std::string LibraryOp::obstacle(at::Device device) const {
  const auto op = find();
  if (!op) return fmt::format("this LibTorch has no {}", full_name());
  if (!has_kernel(*op, device)) {
    return fmt::format("{} has no kernel on {}", full_name(),
                       c10::DeviceTypeName(device.type(), /*lower_case=*/true));
  }
  const auto& known = op->schema().arguments();
  for (const std::string& name : arguments_) {
    if (std::ranges::find(known, name, &c10::Argument::name) == known.end()) {
      return fmt::format("{} takes no argument '{}'", full_name(), name);
    }
  }
  for (const auto& argument : known) {
    const bool given = std::ranges::find(arguments_, argument.name()) != arguments_.end();
    if (!given && !argument.default_value()) {
      return fmt::format("{} needs an argument '{}' that this program does not give",
                         full_name(), argument.name());
    }
  }
  return {};
}

std::string obstacle_of(at::Device device, const LibraryOp& one, const LibraryOp& other) {
  const std::string why = one.obstacle(device);
  return why.empty() ? other.obstacle(device) : why;
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
