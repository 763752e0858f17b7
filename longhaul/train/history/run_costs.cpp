#include "longhaul/train/history/run_costs.h"

#include "longhaul/base/clock.h"
#include "longhaul/base/process.h"
#include "longhaul/config/load.h"
#include "longhaul/config/rules.h"
#include "longhaul/monitor/goodput.h"

namespace longhaul::train {

double spent_node_seconds(const monitor::RunFiles& run) {
  const monitor::Ledger ledger =
      monitor::make_ledger(run.records(), run.events(), run.clock().now(unix_time()));
  return monitor::node_seconds(ledger, run.events());
}

double budget_node_seconds(const RunSection& settings) {
  return 3600.0 * *settings.budget / *settings.price_per_node_hour;
}

void refuse_past_end(const RunConfig& config) {
  longhaul::refuse_past_end(config, system_time());
  if (!config.run.budget) return;
  monitor::RunFiles run(config.run.dir);
  run.refresh();
  const double spent = spent_node_seconds(run) / budget_node_seconds(config.run);
  if (spent < 1.0) return;
  config::fail_key(
      config, "run.budget",
      "run.budget = {} is spent: earlier starts of this run have cost {:.6g}; "
      "set a larger sum, or leave it out",
      *config.run.budget, spent * *config.run.budget);
}

}  // namespace longhaul::train
