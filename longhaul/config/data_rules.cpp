// Rules of the settings of [data].
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "longhaul/config/fields.h"
#include "longhaul/config/rules.h"

namespace longhaul::config {
namespace {

using Warnings = std::vector<std::string>;

/// Returns the name of a source in messages.
std::string name_of(const TrainSource& source) {
  return source.path.empty() ? "synthetic" : source.path.text();
}

void check_sources(const RunConfig& c, Warnings& warnings) {
  std::set<std::string> names;
  for (const ValidationSource& source : c.data.validation) {
    if (!names.insert(source.name).second) {
      fail_key(c, "data.validation",
               "data.validation has two sets named \"{}\"; names must differ",
               source.name);
    }
    if (source.stop_above && c.validation.every == 0) {
      warnings.push_back(
          fmt::format("{}: data.validation \"{}\": stop_above stops nothing before the "
                      "end, since validation.every is 0",
                      origin(c, "data.validation"), source.name));
    }
  }
}

void check_weights(const RunConfig& c, Warnings& warnings) {
  const size_t sources = c.data.train.size();
  int64_t before = 0;
  for (const WeightsFrom& change : c.data.changes) {
    if (change.step <= before) {
      fail_key(c, "data.changes",
               "data.changes: step {} comes after step {}; list the steps in ascending "
               "order, each once",
               change.step, before);
    }
    before = change.step;
    if (change.weights.size() != sources) {
      fail_key(
          c, "data.changes",
          "data.changes: step {} has {} weights, but data.train has {} sources; give one "
          "weight for each source, and 0 for a source that is not used from there on",
          change.step, change.weights.size(), sources);
    }
    if (std::ranges::none_of(change.weights, [](double w) { return w > 0.0; })) {
      fail_key(c, "data.changes", "data.changes: from step {} on every weight is 0",
               change.step);
    }
    if (c.run.steps && change.step > *c.run.steps) {
      warnings.push_back(fmt::format(
          "{}: data.changes: step {} is past run.steps = {} and has no effect",
          origin(c, "data.changes"), change.step, *c.run.steps));
    }
  }
  const auto is_zero = [](const TrainSource& source) { return source.weight == 0.0; };
  if (std::ranges::all_of(c.data.train, is_zero)) {
    fail_key(c, "data.train", "data.train: every weight is 0");
  }
  for (size_t i = 0; i < sources; ++i) {
    const bool used_later = std::ranges::any_of(
        c.data.changes, [&](const WeightsFrom& w) { return w.weights[i] > 0.0; });
    if (!is_zero(c.data.train[i]) || used_later) continue;
    fail_key(c, "data.train",
             "data.train[{}] ({}) has weight 0, and no data.changes gives it another; "
             "leave it out",
             i, name_of(c.data.train[i]));
  }
}

}  // namespace

void check_data(const RunConfig& c, Warnings& warnings) {
  if (c.data.train.empty()) {
    fail_key(c, "data.train", "data.train is empty; give at least one source");
  }
  check_sources(c, warnings);
  check_weights(c, warnings);
  const WarnUnused unused{c, warnings};
  const bool all_synthetic = std::ranges::all_of(
      c.data.train, [](const TrainSource& source) { return source.path.empty(); });
  unused(all_synthetic && !c.data.shuffle, "data.shuffle",
         "synthetic sequences have no order");
  unused(all_synthetic && c.data.document_mask, "data.document_mask",
         "synthetic sequences hold no documents");
  unused(all_synthetic && c.data.validation.empty() && !c.data.cache.empty() &&
             addresses_of(c).empty(),
         "data.cache", "synthetic sequences need no files");
  unused(addresses_of(c).empty() && c.data.cache_gb > 0.0, "data.cache_gb",
         "nothing is read by address");
  const bool single = c.data.train.size() == 1;
  unused(single && c.data.train[0].weight != 1.0, "data.train",
         "a single source needs no weight");
  unused(single && !c.data.changes.empty(), "data.changes", "data.train has one source");
  const bool none = c.data.validation.empty();
  unused(none && c.validation.every != ValidationSection{}.every, "validation.every",
         "data.validation is empty");
  unused(none && c.validation.batches != ValidationSection{}.batches,
         "validation.batches", "data.validation is empty");
}

}  // namespace longhaul::config

namespace longhaul {

std::string problem_of(const TrainSource& item) {
  if (item.path.empty() == (item.synthetic == 0)) {
    return fmt::format(": needs either path or synthetic, not {} of them",
                       item.path.empty() ? "none" : "both");
  }
  if (item.synthetic == 0 || item.field == TrainSource{}.field) return "";
  return fmt::format(
      ".field = \"{}\": synthetic sequences are made of no records; leave field out",
      item.field);
}

std::string problem_of(const WeightsFrom& item) {
  const bool whole = item.step != 0 && !item.weights.empty();
  return whole ? "" : ": needs both step and weights";
}

std::string problem_of(const ValidationSource& item) {
  if (item.name.empty() || item.path.empty()) return ": needs both name and path";
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  if (item.name.find_first_not_of(kAllowed) == std::string::npos) return "";
  return fmt::format(
      ".name = \"{}\": letters, digits, '_', '.' and '-' only, since it names log lines "
      "and metrics",
      item.name);
}

}  // namespace longhaul
