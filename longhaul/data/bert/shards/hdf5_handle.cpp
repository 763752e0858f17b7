#include "longhaul/data/bert/shards/hdf5_handle.h"

#include <fmt/format.h>

#include "longhaul/data/bert/shards/hdf5_shard.h"

namespace longhaul::data {
namespace {

constexpr size_t kLongestReason = 300;

herr_t take_first(unsigned, const H5E_error2_t* error, void* into) {
  auto& text = *static_cast<std::string*>(into);
  if (text.empty() && error->desc != nullptr) text = error->desc;
  return 0;
}

}  // namespace

std::string hdf5_reason() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &text);
  if (text.size() > kLongestReason) text.resize(kLongestReason);
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < 0x20) letter = ' ';
  }
  return text.empty() ? "libhdf5 gives no reason" : text;
}

void tame_hdf5() {
  H5open();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
}

std::string hdf5_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace longhaul::data
