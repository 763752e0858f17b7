#include "apps/verbs/searched_run.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/layout/rules.h"
#include "longhaul/run/step_record.h"

namespace longhaul::apps {
namespace {

constexpr const char* kSearchArea = "plan";

/// Returns the seconds from now to a moment, which is given as in run.until.
double seconds_until(const std::string& date) {
  const auto moment = utc_seconds(date);
  if (!moment) {
    fail_config(kSearchArea,
                "--until {}: no date; write 2027-03-31 or 2027-03-31T18:00, in UTC",
                date);
  }
  const double left = static_cast<double>(*moment) - system_time();
  if (left <= 0.0) {
    fail_config(kSearchArea, "--until {}: this date is past; give a later one", date);
  }
  return left;
}

SearchedLayouts search_on(const CheckedRun& run, const PlannedOn& on,
                          const SearchCall& call) {
  const RunConfig& config = run.loaded.config;
  const ModelDescription& model = run.model->description;
  const plan::Machine machine =
      plan::machine_of(on.profile, on.name, config.precision.compute != ComputeType::Fp32,
                       on.ranks, on.node_ranks);
  const std::set<std::string> names = frozen_parameters(config, model);
  const auto frozen = [&](const std::string& name) { return names.contains(name); };
  const auto bytes =
      static_cast<double>(layout::checkpoint_bytes(model, config.precision, frozen));
  const plan::Cluster cluster = {config, on.profile, machine, on.ranks, on.nodes, bytes};
  const double host_left =
      on.profile.node.host_bytes - plan::host_memory(cluster, 0.0).all();
  SearchedLayouts searched{
      run, on, {}, call.filled * plan::room_of_rank(cluster), host_left};
  searched.found =
      plan::search_layouts({config, model, machine, on.profile, on.ranks, frozen,
                            searched.room, plan::kept_settings(config)},
                           call.top);
  searched.experts_note = note_on_experts(*run.model, machine);
  if (config.run.steps) searched.steps = last_step(config, *config.run.steps);
  if (!searched.found.best.empty()) {
    searched.total =
        plan::totals_of(cluster, static_cast<double>(searched.steps) *
                                     searched.found.best.front().step.seconds);
  }
  return searched;
}

/// Returns the lines of a loser's reason, with its numbers.
std::string reason_text(const SearchedLayouts& s, const plan::Losers& loser) {
  const char* least = loser.counted ? "" : " at least";
  if (loser.reason == plan::Losers::Reason::Memory) {
    return fmt::format("lacks {}{}, most of it {}", human_bytes(loser.lacks), least,
                       plan::cause_name(loser.bytes_of));
  }
  if (loser.reason == plan::Losers::Reason::Time) {
    return fmt::format("slower by {:.1f} %{}: {}{}", 100.0 * loser.slower, least,
                       plan::cause_name(loser.seconds_of),
                       loser.between ? " between nodes" : "");
  }
  RunConfig config = s.run.loaded.config;
  plan::set_layout(config, loser.example, s.on.ranks);
  const layout::ModelLimits limits(s.run.model->description);
  return layout::refusal_of(loser.rule, config, limits, s.run.model->source_path).text;
}

void print_table(const SearchedLayouts& s) {
  fmt::print(
      "  {:>9}  {:>12}  {:>9}  {:>4}  {:>4}  {:>3}  {:>5}  {:>3}  {:>5}  {:<14}  "
      "{:>4}  {:>6}  recompute\n",
      "step s", "tokens/s", "left", "tp", "pp", "cp", "dp", "ep", "micro", "pipeline",
      "zero", "shards");
  for (const plan::CountedLayout& one : s.found.best) {
    const plan::LayoutSettings& l = one.settings;
    std::string pipeline = l.pp > 1 ? plan::pipeline_name(l.pipeline) : "-";
    if (l.virtual_stages > 1) pipeline += fmt::format(" {}", l.virtual_stages);
    fmt::print(
        "  {:>9.4g}  {:>12}  {:>9}  {:>4}  {:>4}  {:>3}  {:>5}  {:>3}  {:>5}  "
        "{:<14}  {:>4}  {:>6}  {}\n",
        one.step.seconds, grouped(std::llround(one.step.tokens_per_s)),
        human_bytes(s.room - one.fullest.all()), l.tp, l.pp, l.cp, l.dp(s.on.ranks), l.ep,
        l.micro_size, pipeline, l.zero, l.shards, plan::recompute_name(l.recompute));
  }
}

/// Returns the run's length and price with the best layout: "3.2 days, 77 node hours,
/// 2,310 USD".
std::string total_text(const SearchedLayouts& s) {
  const NodeProfile& node = s.on.profile.node;
  std::string text = fmt::format("{:.4g} days, {:.5g} node hours",
                                 s.total.seconds / 86400.0, s.total.node_hours);
  if (node.price_per_hour > 0.0) {
    text += fmt::format(", {} {}", grouped(std::llround(s.total.money)), node.currency);
  }
  return text;
}

OrderedJson settings_json(const SearchedLayouts& s, const plan::LayoutSettings& l) {
  return {{"tp", l.tp},
          {"pp", l.pp},
          {"cp", l.cp},
          {"dp", l.dp(s.on.ranks)},
          {"ep", l.ep},
          {"micro_size", l.micro_size},
          {"pipeline", plan::pipeline_name(l.pipeline)},
          {"virtual_stages", l.virtual_stages},
          {"zero", l.zero},
          {"shard_group", l.shards},
          {"recompute", plan::recompute_name(l.recompute)}};
}

OrderedJson counted_json(const SearchedLayouts& s, const plan::CountedLayout& one) {
  return {{"settings", settings_json(s, one.settings)},
          {"seconds", one.step.seconds},
          {run::kTokensPerSecondKey, one.step.tokens_per_s},
          {"all_bytes", one.fullest.all()},
          {"left_bytes", s.room - one.fullest.all()}};
}

}  // namespace

SearchedLayouts search_run(const CheckedRun& run, const PlannedOn& on,
                           const SearchCall& call) {
  if (call.until.empty() && !call.budget) return search_on(run, on, call);
  if (!run.loaded.config.run.steps) {
    fail_config(kSearchArea,
                "--until and --budget need the run's length, and run.epochs depends on "
                "the data; give --set run.epochs= --set run.steps=N");
  }
  if (call.budget && on.profile.node.price_per_hour <= 0.0) {
    fail_config(kSearchArea, "--budget needs a price of the node; give --price PER_HOUR");
  }
  const double left = call.until.empty() ? 0.0 : seconds_until(call.until);
  std::optional<SearchedLayouts> last;
  for (int64_t nodes = 1; nodes <= on.nodes; ++nodes) {
    const bool power = std::has_single_bit(static_cast<uint64_t>(nodes));
    if (!power && on.nodes % nodes != 0) continue;
    PlannedOn part = on;
    part.nodes = nodes;
    part.ranks = std::min(nodes * on.node_ranks, on.ranks);
    SearchedLayouts searched = search_on(run, part, call);
    if (searched.found.best.empty() || searched.host_left < 0.0) continue;
    const bool in_time = call.until.empty() || searched.total.seconds <= left;
    const bool in_budget = !call.budget || searched.total.money <= *call.budget;
    if (in_time && in_budget) return searched;
    last.emplace(std::move(searched));
  }
  if (!last) {
    fail_config(kSearchArea,
                "no layout fits the memory of up to {}; plan --search without --until "
                "and --budget says what the nearest lacks",
                counted(on.nodes, "node"));
  }
  fail_config(kSearchArea,
              "no number of nodes up to {} suffices: on {} the run takes {}; give more "
              "nodes, a later date or a larger budget",
              on.nodes, counted(last->on.nodes, "node"), total_text(*last));
}

void print_search(const SearchedLayouts& s) {
  fmt::print("{} on {}: {} of {}\n{} layouts looked at, {} of them counted exactly\n",
             s.run.loaded.config.run.dir.string(), counted(s.on.ranks, "rank"),
             counted(s.on.nodes, "node"), s.on.name, grouped(s.found.layouts),
             s.found.best.size() + s.found.counted.size());
  if (!s.on.profile.comparison_only.empty()) {
    fmt::print("comparison only: {}\n", s.on.profile.comparison_only);
  }
  if (s.host_left < 0.0) {
    fmt::print("\na node's memory lacks {} for saves and peer memory, in every layout\n",
               human_bytes(-s.host_left));
  }
  if (s.found.nearest) {
    fmt::print("\nno layout fits; the nearest lacks {}: {}\n",
               human_bytes(s.found.nearest->fullest.all() - s.room),
               plan::to_string(s.found.nearest->settings, s.on.ranks));
  } else if (s.found.best.empty()) {
    fmt::print("\nevery layout breaks a rule\n");
  } else {
    fmt::print("\nthe best, by the seconds of a step\n");
    print_table(s);
    if (s.steps > 0) {
      fmt::print("\n{} steps without failures: {}\n", s.steps, total_text(s));
    }
    fmt::print("\nthe first of them in a run file");
    const RunConfig& config = s.run.loaded.config;
    if (!config.parallel.partition.empty()) fmt::print(", without parallel.partition");
    if (config.memory.recompute_layers) fmt::print(", without memory.recompute_layers");
    fmt::print("\n");
    for (const std::string& line :
         plan::toml_lines(s.found.best.front().settings, s.on.ranks)) {
      fmt::print("  {}\n", line);
    }
  }
  fmt::print("\nwhy the others lose, with the one of each kind that loses by least\n");
  for (const plan::Losers& loser : s.found.losers) {
    fmt::print("  {:>9}  {}\n  {:>9}  {}\n", grouped(loser.layouts),
               reason_text(s, loser), "", plan::to_string(loser.example, s.on.ranks));
  }
  if (s.experts_note) fmt::print("\nnot checked\n  {}\n", *s.experts_note);
}

OrderedJson search_json(const SearchedLayouts& s) {
  OrderedJson out;
  out["hardware"] = s.on.name;
  out["comparison_only"] = s.on.profile.comparison_only;
  out["ranks"] = s.on.ranks;
  out["nodes"] = s.on.nodes;
  out["ranks_per_node"] = s.on.node_ranks;
  out["host_left_bytes"] = s.host_left;
  out["layouts"] = s.found.layouts;
  out["not_checked"] = OrderedJson::array();
  if (s.experts_note) out["not_checked"].push_back(*s.experts_note);
  out["best"] = OrderedJson::array();
  for (const plan::CountedLayout& one : s.found.best) {
    out["best"].push_back(counted_json(s, one));
  }
  if (s.found.nearest) out["nearest"] = counted_json(s, *s.found.nearest);
  if (s.steps > 0 && !s.found.best.empty()) {
    const bool priced = s.on.profile.node.price_per_hour > 0.0;
    out["run"] = {{"steps", s.steps},
                  {"seconds", s.total.seconds},
                  {"node_hours", s.total.node_hours},
                  {"money", priced ? OrderedJson(s.total.money) : nullptr},
                  {"currency", s.on.profile.node.currency}};
  }
  out["counted"] = OrderedJson::array();
  for (const plan::Losers& loser : s.found.counted) {
    out["counted"].push_back({{"settings", settings_json(s, loser.example)},
                              {"reason", reason_text(s, loser)}});
  }
  out["losers"] = OrderedJson::array();
  for (const plan::Losers& loser : s.found.losers) {
    out["losers"].push_back({{"layouts", loser.layouts},
                             {"reason", reason_text(s, loser)},
                             {"example", settings_json(s, loser.example)}});
  }
  return out;
}

}  // namespace longhaul::apps
