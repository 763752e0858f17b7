#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "longhaul/dictionary/words.h"

namespace longhaul::translate {

/// One flag, variable or key with its value, as another system's user wrote it.
struct Said {
  std::string name = {};   ///< written as in dictionary::OtherWord
  std::string shown = {};  ///< the name as the user wrote it: "--lr", "training.lr"
  std::vector<std::string> values = {};  ///< none: a flag alone, or an empty list
  bool variable = false;                 ///< a shell would replace a part of the value
  uint64_t shell_value = 0;          ///< ShellWord::value, equal where values are equal
  std::set<std::string> unset = {};  ///< variables behind the value that count as unset
  std::string choices = {};          ///< what an unknown value may be
  bool null = false;                 ///< YAML's null, which counts as not given
  std::string where = {};            ///< "run.yaml:3:5"; empty for a command line

  /// Returns the first value, or an empty text.
  std::string text() const { return values.empty() ? "" : values.front(); }
  /// Returns the setting for messages: "--lr 1e-4".
  std::string as_written() const;
};

/// The number of ranks that a command line starts, if it says so.
struct World {
  std::optional<int64_t> ranks;
  std::string from;  ///< the source of the number: "torchrun"
};

/// Everything that a command line or a file says.
struct Source {
  dictionary::OtherSystem system = dictionary::OtherSystem::Common;
  std::string what;    ///< "run_llama_nxd.py", "llama3_8b.toml"
  std::string script;  ///< name of the script without folders; empty for files
  std::vector<Said> said;
  std::vector<Said> environment;  ///< NAME=VALUE in front of the command
  /// Words that may hold flags and that only a shell replaces: "${ARGS[@]}".
  std::vector<std::string> hidden;
  World world;
  std::vector<std::string> remarks;  ///< what a person should know of the reading
};

}  // namespace longhaul::translate
