#include "apps/inputs/looked_data.h"

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/objects/address.h"

namespace longhaul::apps {
namespace {

/// Returns the bytes of an object, or of all objects below an address.
double bytes_at(const objects::Address& address, objects::ObjectStore& store) {
  if (!address.key.empty()) {
    if (const auto object = store.look(address)) return static_cast<double>(object->size);
  }
  const auto below = store.list(address, /*versions=*/false);
  if (below.empty()) {
    fail_input("objects", "{}: there is neither such an object nor one below it",
               address.text());
  }
  double bytes = 0.0;
  for (const objects::ObjectInfo& object : below) {
    bytes += static_cast<double>(object.size);
  }
  return bytes;
}

}  // namespace

LookedData look_at_data(const RunConfig& config, objects::ObjectStore& store) {
  LookedData looked;
  for (const fs::path& address : addresses_of(config)) {
    if (has_wildcard(address.native())) continue;
    const double bytes = bytes_at(objects::parse_address(address), store);
    (data::may_hold_ids(address) ? looked.packed : looked.copied) += bytes;
    looked.addresses.push_back(address);
  }
  return looked;
}

}  // namespace longhaul::apps
