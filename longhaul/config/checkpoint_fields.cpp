// The fields of [checkpoint].
#include "longhaul/config/codec.h"
#include "longhaul/config/fields.h"
#include "longhaul/config/rules.h"
#include "longhaul/config/special_codecs.h"

namespace longhaul {

using config::Fields;
using config::make_field;
using enum ResumeClass;

namespace {
constexpr auto kMostSteps = static_cast<double>(config::kMaxSteps);
}  // namespace

Fields fields_of(CheckpointSection& s) {
  return {
      make_field("every", s.every, Free, "steps between checkpoints; 0: only at the end")
          .within(0, kMostSteps),
      make_field("every_minutes", s.every_minutes, Free, "minutes between saves; 0: none")
          .within(0, 1e6),
      make_field("keep", s.keep, Free, "newest verified checkpoints kept; 0: all")
          .within(0, kMostSteps),
      make_field("milestone_every", s.milestone_every, Free,
                 "steps between checkpoints that are kept for ever; 0: none")
          .within(0, kMostSteps),
      make_field("async", s.async_, Free,
                 "copy the state to host memory and write it while training goes on; "
                 "costs as much host memory as a rank's share of the checkpoint"),
      make_field("read_back", s.read_back, Free,
                 "after a commit read every file from the device and check it, before "
                 "older checkpoints are deleted"),
      make_field("resume", s.resume, Free,
                 "latest (the newest checkpoint, where there is one), never (begin anew "
                 "and set existing checkpoints aside), or a step or the path of one of "
                 "the run's checkpoints to go back to. The path of another run's "
                 "checkpoint begins the run there, with that data position"),
      make_field("dir", s.dir, Free, "directory of the checkpoints")
          .when_absent("run.dir/checkpoints"),
      make_field("mirror", s.mirror, Free,
                 "address in an object store, s3://BUCKET/KEY, to which checkpoints are "
                 "copied while training goes on. A start that finds no checkpoint in dir "
                 "takes the newest from there. Credentials come from the environment")
          .when_absent("no copies"),
      make_field("mirror_keep", s.mirror_keep, Free,
                 "newest checkpoints kept in the mirror, beside milestones; 0: all")
          .within(0, kMostSteps)
          .when_absent("checkpoint.keep"),
  };
}

}  // namespace longhaul
