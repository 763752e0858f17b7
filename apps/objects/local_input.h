#pragma once

#include <memory>
#include <string>
#include <thread>

#include "longhaul/base/file.h"
#include "longhaul/objects/access.h"
#include "longhaul/objects/output_place.h"
#include "longhaul/system/signals.h"

namespace longhaul::apps {

/// Returns a path on this machine for what an argument names. For a path it is the path
/// itself, and for an address it is the path of a local copy, which is fetched if it is
/// not there yet. Lines on standard error tell of a fetch. The copy stays while `objects`
/// lives. With `prove_anew` the copy is compared with its hashes even if that was done
/// before.
std::string local_input(const std::string& named, const objects::Access& objects,
                        bool prove_anew = false);

/// The local path of an argument that may name a checkpoint. The address of a mirror
/// means its newest whole checkpoint, whose copy stays while this object lives. Any other
/// argument goes to local_input(). `verify` asks with `prove_anew`, since it must find
/// out whether all bytes are sound.
class LocalCheckpoint {
 public:
  LocalCheckpoint(const std::string& named, const objects::Access& objects,
                  bool prove_anew = false);
  std::string path() const { return path_; }

 private:
  std::string path_;
  std::shared_ptr<const fs::path> copy_;  ///< null where it is of no mirror
};

/// Stops the requests to the object store when a signal asks the process to end, so that
/// a store that does not answer cannot delay the end. `signals` must outlive this object.
class StopObjectsAtSignal {
 public:
  StopObjectsAtSignal(const system::SignalWatch& signals, const objects::Access& objects);

 private:
  std::jthread watch_;
};

/// Returns `use`, which describes how a verb writes its --out, with two additions. The
/// files by which this program recognises a directory are uploaded last, and messages and
/// warnings go to standard error.
objects::OutputUse output_use(objects::OutputUse use);

}  // namespace longhaul::apps
