#pragma once

#include <cstdint>
#include <string>

namespace longhaul::apps {

/// The arguments of `longhaul import --flags`, which makes a run file of the command line
/// or the settings file that another system was started with.
struct FlagsCall {
  std::string flags;  ///< a command line, or a file's path
  int64_t ranks = 0;  ///< 0: the number that the command line says
  std::string out;    ///< empty: standard output
};

/// Prints or writes the run file, and says on standard error how many settings it carried
/// over. A run file that `train` would refuse is printed and never written: ConfigError.
/// Throws InputError, and writes nothing, if `flags` cannot be read or `out` exists.
void import_flags(const FlagsCall& call);

}  // namespace longhaul::apps
