#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <type_traits>

#include "longhaul/base/error.h"

namespace longhaul {

/// Returns the message of the `Exception` that `call` throws. Fails if `call` throws
/// none, or another one.
template <class Exception, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Exception& error) {
    if constexpr (std::is_same_v<Exception, ConfigError>) {
      EXPECT_EQ(error.exit_code(), 78);
    }
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace longhaul
