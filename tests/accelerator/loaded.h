#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/device/plugin.h"

namespace longhaul::softdev_test {

/// Loads the plug-in once, with many devices. The calling thread has device 0 if it has
/// chosen no other.
inline at::Device device(int index = 0) {
  static const bool loaded = [] {
    ::setenv("SOFTDEV_COUNT", "48", 0);
    ::setenv("SOFTDEV_MEMORY", "1073741824", 0);
    device::load_plugin(LONGHAUL_SOFTWARE_ACCELERATOR);
    return true;
  }();
  static_cast<void>(loaded);
  thread_local const bool chosen = [] {
    const c10::impl::VirtualGuardImpl guard(at::kPrivateUse1);
    guard.setDevice(guard.getDevice());
    return true;
  }();
  static_cast<void>(chosen);
  return {at::kPrivateUse1, static_cast<at::DeviceIndex>(index)};
}

/// Returns the counters of the process.
inline nlohmann::json counters() {
  device();
  auto* call =
      reinterpret_cast<const char* (*)()>(device::plugin_function("softdev_counters"));
  return nlohmann::json::parse(call());
}

/// Returns one of the counters.
inline int64_t counted(const char* name) { return counters().at(name).get<int64_t>(); }

/// Returns the text that `call` throws.
template <typename Call>
std::string failure_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing thrown";
}

}  // namespace longhaul::softdev_test
