#pragma once

#include <string>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/objects/address.h"

namespace longhaul::objects {

/// What the message of Arrow's client holds where it does not trust a certificate.
inline constexpr const char* kUntrusted = "SSL peer certificate";
/// What the message holds where the bucket is in another region.
inline constexpr const char* kElsewhere = "HTTP status 301";

/// Returns what Arrow's message about a request that has failed for good means to a
/// person, and whether it may pass. `doing` is what could not be done to the object, such
/// as "read"; `patience` is for how many seconds it was tried.
Error store_error(const std::string& message, const Address& address,
                  std::string_view doing, double patience);

/// Returns whether an error of store_error() says that credentials have expired.
bool says_expired(const Error& error);

}  // namespace longhaul::objects
