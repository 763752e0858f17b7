#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/health/peers.h"
#include "longhaul/cluster/record/exclusions.h"
#include "longhaul/cluster/supervisor/supervisor.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/checked_node.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {

/// A fleet of made-up nodes, which are healthy or sick.
class MadeUpFleet : public Fleet {
 public:
  void wait(double seconds) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, 0.02)));
  }
  NodeReports reports() override {
    NodeReports newest;
    Reports made = make_reports ? make_reports() : Reports();
    for (NodeReport& report : made) {
      newest.push_back(std::make_shared<const NodeReport>(std::move(report)));
    }
    return newest;
  }
  std::vector<std::string> lost_nodes() override { return {}; }
  void signal(int, const std::vector<int>&) override {}
  void ask_to_end(int cause) override { causes.push_back(cause); }
  void forget() override {}
  std::map<int, std::string> stacks(const std::vector<int>&) override { return {}; }
  std::vector<HealthReport> check_health(const std::vector<std::string>& asked,
                                         const HealthOptions&, double) override {
    if (at_check) at_check();
    std::vector<HealthReport> reports;
    for (const auto& [node, healthy] : nodes) {
      if (!asked.empty() && std::ranges::count(asked, node) == 0) continue;
      ++checks;
      reports.push_back(report_of(node, healthy));
      if (!unreached.contains(node)) continue;
      reports.back().checks.push_back(HealthCheck::failed("does not reach some"));
      reports.back().checks.back().name = kPeersCheck;
      reports.back().checks.back().values = {{"unreached", unreached[node]}};
    }
    return reports;
  }
  std::vector<std::string> take_notes() override { return {}; }
  std::vector<NodePaths> view_paths(const std::vector<NeededPath>&) override {
    std::vector<NodePaths> all;
    for (const auto& [node, view] : views) all.push_back({node, {view}});
    return all;
  }
  double stood_seconds() const override { return stood ? stood() : 0.0; }
  void abandon() override { abandoned = true; }

  std::map<std::string, PathView> views;  ///< of the run's directory, by node
  std::function<double()> stood;
  bool abandoned = false;
  using Reports = std::vector<NodeReport>;
  std::function<Reports()> make_reports;
  std::map<std::string, bool> nodes;
  std::map<std::string, std::vector<std::string>> unreached;  ///< by node that tells it
  std::vector<int> causes;                                    ///< of ask_to_end()
  std::function<void()> at_check;
  int checks = 0;
};

class SupervisorOfNodes : public testing::Test {
 protected:
  int run(SupervisorOptions options = {}) {
    options.run_dir = dir_.path();
    options.checkpoint_dir = dir_ / "checkpoints";
    options.directories.root = dir_ / "memory";
    options.other_nodes = true;
    options.job = "7";
    options.here = "n1";
    options.needed = {{"the run's directory", dir_.path(), PathRole::Run}};
    options.rules.first_delay_seconds = 0.0;
    options.second_look_seconds = 0.0;
    Launcher launcher;
    launcher.command = [&](const Attempt& attempt) {
      if (!trouble_ && left(attempt) < wanted_) throw TemporaryError("nodes", "too few");
      started_without_ = attempt.excluded;
      resumed_.push_back(attempt.resume);
      if (trouble_) throw to_error(fs::filesystem_error("open", dir_.path(), trouble_));
      ++started_;
      return words_;
    };
    launcher.lacks_nodes = [&](const Attempt& attempt) {
      fleet_.nodes.insert(late_.begin(), late_.end());
      return left(attempt) < wanted_;
    };
    return supervise(std::move(options), std::move(launcher), fleet_,
                     take_supervision(dir_.path()));
  }
  size_t left(const Attempt& attempt) const {
    return fleet_.nodes.size() - static_cast<size_t>(std::ranges::count_if(
                                     attempt.excluded, [&](const std::string& node) {
                                       return fleet_.nodes.contains(node);
                                     }));
  }
  void exclude(const std::string& node, ExclusionKind kind) {
    std::vector<ExcludedNode> nodes = read_excluded(dir_ / "excluded_nodes.json");
    nodes.push_back({node, unix_time(), "a cause", kind});
    write_excluded(dir_ / "excluded_nodes.json", nodes);
  }
  std::vector<Json> events(const std::string& name) const {
    std::vector<Json> found;
    std::istringstream lines(read_text(dir_ / "events.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      Json event = parse_json(line, "events.jsonl");
      if (event.at("event") == name) found.push_back(std::move(event));
    }
    return found;
  }
  using Names = std::vector<std::string>;

  TestDirectory dir_;
  MadeUpFleet fleet_;
  size_t wanted_ = 2;
  std::map<std::string, bool> late_;  ///< nodes that come after the first look
  Names started_without_;
  std::vector<bool> resumed_;  ///< Attempt::resume of each start
  Names words_ = {"true"};
  int started_ = 0;
  std::error_code trouble_;
};

}  // namespace longhaul::cluster
