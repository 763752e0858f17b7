#pragma once

#include <cstdint>
#include <string>

namespace longhaul::apps {

/// `longhaul import --flags`: what another system was started with, as a run file.
struct FlagsCall {
  std::string flags;  ///< a command line, or a file's path
  int64_t ranks = 0;  ///< 0: what the command line says
  std::string out;    ///< empty: standard output
};

/// Prints or writes the run file and counts, on standard error, what came along.
/// ConfigError after it where `train` would refuse the file; InputError where nothing can
/// be read.
void import_flags(const FlagsCall& call);

}  // namespace longhaul::apps
