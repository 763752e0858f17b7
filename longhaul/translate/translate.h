#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace longhaul::translate {

/// A run file made of another system's command line or file.
struct Translation {
  std::string text;                   ///< the whole file, with a comment per value
  int64_t carried = 0;                ///< settings that have a value in the file
  int64_t without_key = 0;            ///< settings that need no key, or have none
  std::vector<std::string> unknown;   ///< settings that no table knows: "--lrr 1"
  std::vector<std::string> to_fill;   ///< keys whose value the person has to give
  std::vector<std::string> warnings;  ///< warnings of `train`, and remarks
  std::string refused;  ///< why `train` would refuse the file; empty: it would not
};

/// Translates `given` into a run file. `given` is a command line, or the path of a file
/// with a command line, a torchtitan TOML, or a YAML of nanotron, axolotl, TRL or
/// LLaMA-Factory; the kind follows from the content. `ranks` overrides the number of
/// ranks that the command line starts. Throws InputError with file and line if `given`
/// cannot be read, or if its system is not known.
Translation translate(const std::string& given, std::optional<int64_t> ranks);

}  // namespace longhaul::translate
