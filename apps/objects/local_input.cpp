#include "apps/objects/local_input.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "longhaul/objects/address.h"
#include "longhaul/objects/readable.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {

std::string local_input(const std::string& named) {
  if (!objects::is_address(named)) return named;
  objects::CopyPlace place;
  place.tell = [](const std::string& line) {
    fmt::print(stderr, "{}\n", system::printable(line));
  };
  objects::keep_copies(std::move(place));
  return objects::readable(named).string();
}

}  // namespace longhaul::apps
