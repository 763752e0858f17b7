#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "longhaul/run/events.h"
#include "longhaul/run/step_record.h"
#include "longhaul/session/router_loads.h"
#include "longhaul/train/log/run_log.h"

namespace longhaul::train {

/// Sets the experts' numbers in a step's record; none where the model has no experts.
void set_figures(const session::ExpertLoads& loads, run::StepRecord& record);
/// Returns a step's loads by layer. Numbers have four decimals.
run::ExpertLoadsEvent expert_loads(const session::ExpertLoads& loads, int64_t step);

/// Finds the layers whose routers collapse: less than `warn_below` of a layer's experts
/// are in effective use. A layer is told once, and again only after its share in use has
/// been a tenth above `warn_below`.
class CollapseRule {
 public:
  explicit CollapseRule(double warn_below) : warn_below_(warn_below) {}
  /// Takes the next step, and returns the layers that collapse at this step. A step with
  /// few choices for the number of experts is not judged.
  std::vector<run::RouterCollapsedEvent> look(const session::ExpertLoads& loads,
                                              int64_t step);

 private:
  double warn_below_;
  std::set<int64_t> collapsed_;
};

/// Tells what the routers of experts do: numbers of every step, the loads of some steps,
/// and a warning of a collapse. Does nothing for a model without experts.
class RouterLog {
 public:
  /// `last_step` is the step at which the run is to end, which may change later.
  RouterLog(RunLog& run, const RunConfig& config, const int64_t& last_step)
      : run_(run),
        every_(config.log.layer_norms_every),
        last_step_(last_step),
        warn_below_(config.experts.warn_below),
        rule_(warn_below_) {}

  /// Takes the loads of the record's step. If the step is bad, only fills the record.
  void tell(const session::ExpertLoads& loads, run::StepRecord& record);

 private:
  RunLog& run_;
  int64_t every_;
  const int64_t& last_step_;
  double warn_below_;
  CollapseRule rule_;
};

}  // namespace longhaul::train
