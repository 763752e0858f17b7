// The fields of run.expect, run.golden and parallel.chosen.
#include <algorithm>

#include "longhaul/config/codec.h"
#include "longhaul/config/fields.h"
#include "longhaul/config/rules.h"
#include "longhaul/run/step_record.h"

namespace longhaul {
constexpr auto names_of(MissPolicy) { return std::array{"stop", "warn"}; }

using config::Fields;
using config::make_field;
using enum ResumeClass;

Fields fields_of(ExpectedRate& s) {
  return {
      make_field(run::kTokensPerSecondKey, s.tokens_per_s, Free, "of all ranks together")
          .above(0),
      make_field("tolerance", s.tolerance, Free, "share that may be missing").below(0, 1),
      make_field("steps", s.steps, Free, "steps of the mean")
          .within(1, static_cast<double>(config::kMaxSteps)),
      make_field("on_miss", s.on_miss, Free, "what follows"),
  };
}

Fields fields_of(GoldenLoss& s) {
  return {
      make_field("step", s.step, Free, "the step")
          .within(1, static_cast<double>(config::kMaxSteps)),
      make_field("loss", s.loss, Free, "its loss").above(0),
  };
}

Fields fields_of(GoldenLosses& s) {
  return {
      make_field("file", s.file, Free, "a loss, or a step and a loss, a line"),
      make_field("losses", s.losses, Free, "instead of a file").written_unless([&s] {
        return s.losses.empty();
      }),
      make_field("tolerance", s.tolerance, Free, "share of the loss").within(0, 1e6),
      make_field("on_miss", s.on_miss, Free, "what follows"),
  };
}

Fields fields_of(ChosenLayout& s) {
  return {
      make_field("ranks", s.ranks, Free, "for which it was chosen").within(1, 1e6),
      make_field("hardware", s.hardware, Free, "the machine"),
      make_field("step_s", s.step_s, Free, "predicted seconds of a step").above(0),
      make_field("settings", s.settings, Free, "those that were chosen"),
  };
}

std::string problem_of(const ExpectedRate& item) {
  return item.tokens_per_s > 0.0 ? "" : ": needs tokens_per_s";
}

std::string problem_of(const GoldenLoss& item) {
  return item.step > 0 && item.loss > 0.0 ? "" : ": needs both step and loss";
}

std::string problem_of(const ChosenLayout& item) {
  if (item.ranks == 0 || item.hardware.empty() || item.step_s <= 0.0) {
    return ": needs ranks, hardware, step_s and settings";
  }
  for (const std::string& key : item.settings) {
    if (std::ranges::count(config::kLayoutSettings, key) > 0) continue;
    return fmt::format(": {} is no setting that parallel.auto chooses", key);
  }
  return "";
}

std::string problem_of(const GoldenLosses& item) {
  if (item.file.empty() != item.losses.empty()) return "";
  return fmt::format(": needs either file or losses, not {} of them",
                     item.file.empty() ? "none" : "both");
}

}  // namespace longhaul
