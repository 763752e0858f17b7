#include "longhaul/train/start/data_check.h"

#include <chrono>
#include <utility>

#include "longhaul/system/signals.h"

namespace longhaul::train {

std::vector<std::shared_ptr<const data::TokenSource>> unproven_sources(
    const TrainingSession& session) {
  std::vector<std::shared_ptr<const data::TokenSource>> sources;
  if (session.world().rank() > 0) return sources;
  const auto add = [&](const std::shared_ptr<const data::TokenSource>& source) {
    if (source->max_token_id() == 0) sources.push_back(source);
  };
  for (const data::WeightedSource& weighted : session.data().train) add(weighted.source);
  for (const ValidationSet& set : session.data().validation) add(set.source);
  return sources;
}

DataCheck::DataCheck(std::vector<std::shared_ptr<const data::TokenSource>> sources) {
  if (sources.empty()) return;
  under_way_ = std::async(std::launch::async, [this, sources = std::move(sources)] {
    system::leave_signals_to_main_thread();
    for (const auto& source : sources) source->check_rows(stop_);
  });
}

DataCheck::~DataCheck() { stop_ = true; }

void DataCheck::settle(double seconds) {
  if (!under_way_.valid()) return;
  const auto limit = std::chrono::duration<double>(seconds);
  if (under_way_.wait_for(limit) == std::future_status::ready) under_way_.get();
}

void DataCheck::finish() {
  if (under_way_.valid()) under_way_.get();
}

}  // namespace longhaul::train
