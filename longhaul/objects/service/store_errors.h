#pragma once

#include <string>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/objects/address.h"

namespace longhaul::objects {

/// What the message of Arrow's client contains if it does not trust a certificate.
inline constexpr const char* kUntrusted = "SSL peer certificate";
/// What the message of Arrow's client contains if the bucket is in another region.
inline constexpr const char* kElsewhere = "HTTP status 301";

/// Returns the error that tells a person what Arrow's message about a failed request
/// means. Its kind says whether a later try may succeed. `doing` is what could not be
/// done to the object, such as "read"; `patience` is for how many seconds it was tried.
Error store_error(const std::string& message, const Address& address,
                  std::string_view doing, double patience);

/// Returns whether an error of store_error() says that credentials have expired.
bool says_expired(const Error& error);

}  // namespace longhaul::objects
