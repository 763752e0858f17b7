#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace longhaul::translate {

/// A run file made of another system's command line or file.
struct Translation {
  std::string text;                   ///< the whole file, with a comment per value
  int64_t carried = 0;                ///< settings of theirs that have a value here
  int64_t without_key = 0;            ///< that need none, or have none
  std::vector<std::string> unknown;   ///< that nothing knows: "--lrr 1"
  std::vector<std::string> to_fill;   ///< keys whose value the person has to give
  std::vector<std::string> warnings;  ///< what `train` would warn of, and remarks
  std::string refused;  ///< why `train` would refuse the file; empty: it would not
};

/// `given` is a command line, or the path of a file with one, of a torchtitan TOML, or of
/// a nanotron or axolotl YAML; the kind follows from what is in it. `ranks` beats what
/// the command line starts. InputError with file and line where it cannot be read, or
/// where no system is known in it.
Translation translate(const std::string& given, std::optional<int64_t> ranks);

}  // namespace longhaul::translate
