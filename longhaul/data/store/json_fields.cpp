#include "longhaul/data/store/json_fields.h"

namespace longhaul::data {
namespace {

constexpr uint64_t kMaxCount = uint64_t{1} << 56;

}  // namespace

StoreFields::StoreFields(const Json& json, const fs::path& file)
    : json_(json), file_(file) {
  if (!json.is_object()) fail("an object was expected");
}

const Json& StoreFields::field(const char* name) const {
  const auto at = json_.find(name);
  if (at == json_.end()) fail(fmt::format("the field '{}' is missing", name));
  return *at;
}

int64_t StoreFields::count(const char* name) const {
  const Json& value = field(name);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMaxCount) {
    fail(fmt::format("the field '{}' is {}, not a count", name, value.dump()));
  }
  return value.get<int64_t>();
}

void StoreFields::fail(const std::string& what) const {
  throw InputError("data", fmt::format("{}: {}; build the store again or copy it again",
                                       file_.string(), what));
}

}  // namespace longhaul::data
