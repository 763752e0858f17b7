#pragma once

#include <cstdint>
#include <string>

#include "longhaul/base/json.h"
#include "longhaul/config/run_config.h"
#include "longhaul/monitor/records.h"

namespace longhaul::train {

/// The parameter of results.json that says how many micro batches a step has.
inline constexpr const char* kAccumulationParameter = "Gradient accumulation microsteps";
/// The name of the time to train in this program's own form of results.json.
inline constexpr const char* kTimeToTrain = "Time to train";

/// What results.json says of a run beside its parameters and records.
struct ResultsFacts {
  RunConfig config;       ///< log.results is the form of the file
  int64_t sequences = 0;  ///< of data.train, each counted once
  int64_t shards = 1;     ///< files of data.train
};

/// Returns one of the metrics of results.json, in any of its forms.
Json results_metric(const char* name, const Json& value, const char* units,
                    std::string timestamp, Json more);

/// Returns a time to train in minutes, to four digits, as in the forms of results.json
/// that come from other scripts.
double minutes_to_train(double seconds);
/// Returns whether a metric of this name is the time to train, in any form.
bool is_time_to_train(const Json& name);

/// Returns the parameters in the form that log.results names, from those in this
/// program's own form (run_log.cpp).
Json other_parameters(const ResultsFacts& facts, const Json& ours);

/// Returns the metrics in the form that log.results names. As in the scripts from which
/// these forms come, a throughput is a mean over ten steps, waits between the steps
/// included. `seconds` is the time to train.
Json other_metrics(const ResultsFacts& facts, const Json& ours,
                   const monitor::Records& records, double seconds);

}  // namespace longhaul::train
