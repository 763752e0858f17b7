#pragma once

#include <memory>
#include <string>
#include <thread>

#include "longhaul/base/file.h"
#include "longhaul/system/signals.h"

namespace longhaul::apps {

/// Returns a path of this machine for what an argument names: the path itself, or for an
/// address that of a local copy, which is fetched where it is not there. Lines on
/// standard error tell of a fetch. The copy stays until this process ends.
/// `prove_anew` has the copy compared with its hashes, also where that was done before.
std::string local_input(const std::string& named, bool prove_anew = false);

/// Returns a text in which what the user has named stands in place of the path that is
/// used for it.
std::string with_named(std::string text, const std::string& path,
                       const std::string& named);

/// Does what local_input() does for what may be a checkpoint: the address of a mirror
/// means its newest whole checkpoint, whose copy stays while this object lives. `verify`
/// asks with `prove_anew`, since it is asked whether all bytes are sound.
class LocalCheckpoint {
 public:
  explicit LocalCheckpoint(const std::string& named, bool prove_anew = false);
  std::string path() const { return path_; }

 private:
  std::string path_;
  std::shared_ptr<const fs::path> copy_;  ///< null where it is of no mirror
};

/// Ends the requests to the object store of this process when a signal asks the process
/// to end: a store that does not answer does not hold it up. `signals` must outlive it.
class StopObjectsAtSignal {
 public:
  explicit StopObjectsAtSignal(const system::SignalWatch& signals);

 private:
  std::jthread watch_;
};

}  // namespace longhaul::apps
