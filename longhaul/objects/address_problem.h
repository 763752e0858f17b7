#pragma once

#include <string>
#include <string_view>

namespace longhaul::objects {

/// Returns what is wrong with the address of an object, which may have wildcards; empty
/// if nothing is. The text repeats no secret that may stand in the address.
std::string address_problem(const std::string& path);

/// Returns what is wrong with a text that holds an address with credentials
/// ("s3://KEY:SECRET@bucket"), with options ("?access_key=") or with a signature
/// ("?X-Amz-Signature="). The result is empty for any other text, and repeats no secret.
/// Must be called before words that a person typed are refused, since the error prints
/// them.
std::string secret_problem(std::string_view text);

}  // namespace longhaul::objects
