#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/config/run_config.h"

namespace longhaul::cluster {

/// The container that a step runs in, by pyxis: an image, and the directories of the
/// nodes that are mounted in it at the same paths.
struct Container {
  std::string image;  ///< empty: no container
  std::vector<fs::path> mounts;
  fs::path directory;  ///< where the step starts; empty: the image decides
  std::vector<fs::path> read_only = {};  ///< mounts into which no rank writes
  /// Names of variables whose values come from the job even if the image sets them.
  std::vector<std::string> variables = {};
};

/// Returns the options of srun for the container; none without an image.
std::vector<std::string> container_words(const Container& container);

/// Returns the paths of named_paths() that ranks need. A pattern of names stands for the
/// directory before its first wildcard. The paths may be relative.
std::vector<fs::path> paths_of_run(const RunConfig& config);

/// Returns what the words of a command line name: absolute paths, also behind a "=", and
/// relative paths to something that is there. A pattern stands for the directory before
/// its first wildcard.
std::vector<fs::path> paths_of_words(const std::vector<std::string>& words);

/// Returns the directory that a program needs as a whole: with PREFIX/bin/longhaul it is
/// PREFIX; of a program in a Python environment it is the environment. Throws InputError
/// if that is a directory that every image has for itself, such as /usr.
fs::path tree_of_program(const fs::path& program);

/// Returns the Python environments from which this process has loaded libraries
/// (LibTorch, Arrow). A program that was built and not installed loads them from there.
/// `maps` stands for /proc/self/maps in tests.
std::vector<fs::path> environments_in_use(const fs::path& maps = "/proc/self/maps");

/// Returns the mounts for these paths, absolute and each once. What lies in a directory
/// that is mounted is left out. For a path that does not exist, takes its nearest parent
/// that does; for links, also those in a named directory, takes what they lead to as
/// well. What every image has for itself (/usr, /tmp, /) is left out, and what lies in
/// one of `others`. Throws InputError for a path that srun's list cannot hold.
std::vector<fs::path> mounts_of(const std::vector<fs::path>& paths,
                                const std::vector<fs::path>& others = {});

}  // namespace longhaul::cluster
