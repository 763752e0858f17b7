// The fields of [debug].
#include "longhaul/config/codec.h"
#include "longhaul/config/fields.h"

namespace longhaul {
constexpr auto names_of(FaultKind) {
  return std::array{"nonfinite_loss", "nonfinite_gradient", "spike", "bit_flip"};
}

using config::Fields;
using config::make_field;
using enum ResumeClass;

Fields fields_of(CaptureSettings& s) {
  return {
      make_field("steps", s.steps, Free, "steps to capture").at_least(1),
      make_field("ranks", s.ranks, Free, "ranks that write; []: all").at_least(0),
      make_field("tensors", s.tensors, Free,
                 "name patterns such as \"gradient.*norm*\" or \"activation.layers.3\"; "
                 "[]: all"),
  };
}

Fields fields_of(DebugFault& s) {
  return {
      make_field("step", s.step, Free, "the step, or the batch that it has at first")
          .at_least(1),
      make_field("kind", s.kind, Free, "what goes wrong"),
      make_field("rank", s.rank, Free, "where").at_least(0),
      make_field("attempt", s.attempt, Free, "only in this start; 0: in all").at_least(0),
      make_field("tensor", s.tensor, Free, "bit_flip: whose first weight"),
  };
}

Fields fields_of(DebugDelay& s) {
  return {
      make_field("phase", s.phase, Free, "as the rank's record names it")
          .one_of({kDelayPhases.begin(), kDelayPhases.end()}),
      make_field("seconds", s.seconds, Free, "how long").within(0, 3600),
      make_field("rank", s.rank, Free, "where").at_least(0).when_absent("all"),
  };
}

Fields fields_of(DebugSection& s) {
  return {
      make_field("capture", s.capture, Free,
                 "activations and gradients in global coordinates, written to "
                 "run.dir/captures and compared with longhaul compare")
          .when_absent("none"),
      make_field("faults", s.faults, Free,
                 "faults made on purpose, to see what the run does about them"),
      make_field("delays", s.delays, Free,
                 "seconds lost on purpose whenever a rank enters a phase"),
  };
}

std::string problem_of(const CaptureSettings& item) {
  return item.steps.empty() ? ": needs steps, a list" : "";
}

std::string problem_of(const DebugFault& item) {
  return item.step == 0 ? ": needs step" : "";
}

std::string problem_of(const DebugDelay& item) {
  const bool whole = !item.phase.empty() && item.seconds != 0.0;
  return whole ? "" : ": needs both phase and seconds";
}

}  // namespace longhaul
