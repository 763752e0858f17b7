#pragma once

#include <csignal>
#include <memory>
#include <utility>

#include "longhaul/cluster/fleet/cloud_instance.h"
#include "longhaul/cluster/fleet/fleet.h"
#include "longhaul/cluster/watch/node_watch.h"

namespace longhaul::cluster {

/// The Fleet of this machine alone, without agents.
class LocalFleet : public Fleet {
 public:
  LocalFleet(std::string node, const NodeDirectories& directories)
      : directories_(directories), watch_(std::move(node), directories.records()) {}
  ~LocalFleet() override { directories_.clean_up(); }

  void wait(double seconds) override {
    watch_.wait(seconds);
    instance_.look();
  }
  NodeReports reports() override {
    return {std::make_shared<const NodeReport>(watch_.report())};
  }
  std::vector<std::string> lost_nodes() override { return {}; }
  void signal(int number, const std::vector<int>& ranks) override {
    watch_.signal(number, ranks);
  }
  void ask_to_end(int cause) override { watch_.signal(SIGUSR1, {}, cause); }
  void forget() override {
    watch_.forget();
    directories_.remove_segments();
  }
  std::map<int, std::string> stacks(const std::vector<int>& ranks) override {
    return watch_.stacks(ranks);
  }
  /// Checks nothing, because there is no other machine to go to. `longhaul doctor` checks
  /// this one.
  std::vector<HealthReport> check_health(const std::vector<std::string>&,
                                         const HealthOptions&, double) override {
    return {};
  }
  std::vector<std::string> take_notes() override { return watch_.take_notes(); }

 private:
  InstanceLine instance_{"longhaul"};
  HeldDirectories directories_;
  NodeWatch watch_;
};

}  // namespace longhaul::cluster
