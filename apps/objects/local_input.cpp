#include "apps/objects/local_input.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <stop_token>
#include <utility>

#include "apps/objects/mirrored_checkpoint.h"
#include "longhaul/objects/address.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {

namespace {

void tell(const std::string& line) {
  fmt::print(stderr, "{}\n", system::printable(line));
}

}  // namespace

StopObjectsAtSignal::StopObjectsAtSignal(const system::SignalWatch& signals,
                                         const objects::Access& objects)
    : watch_([&signals, objects](const std::stop_token& stop) {
        system::leave_signals_to_main_thread();
        while (!stop.stop_requested() && signals.raised() == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        if (signals.raised() != 0) objects.store()->stop();
      }) {}

LocalCheckpoint::LocalCheckpoint(const std::string& named, const objects::Access& objects,
                                 bool prove_anew) {
  if (objects::is_address(named)) {
    copy_ = mirrored_checkpoint(objects::parse_address(named), objects, tell, prove_anew);
  }
  path_ = copy_ ? copy_->string() : local_input(named, objects, prove_anew);
}

std::string local_input(const std::string& named, const objects::Access& objects,
                        bool prove_anew) {
  if (!objects::is_address(named)) return named;
  objects::CopyPlace place;
  place.tell = tell;
  place.prove_anew = prove_anew;
  objects.keep_copies(std::move(place));
  return objects.readable(named).string();
}

}  // namespace longhaul::apps
