#include "longhaul/families/gelu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace longhaul::families {

bool read_tanh_gelu(const ConfigFields& fields) {
  constexpr std::array kTanh = {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"};
  const std::string act = fields.text("hidden_act").value_or("gelu");
  if (std::ranges::count(kTanh, act) > 0) return true;
  if (act != "gelu") {
    fields.fail("hidden_act", "\"{}\" is not available; supported: \"gelu\", \"{}\"", act,
                fmt::join(kTanh, "\", \""));
  }
  return false;
}

}  // namespace longhaul::families
