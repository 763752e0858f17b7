// The fields of [data], and the rules of its settings.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "longhaul/config/fields.h"
#include "longhaul/config/rules.h"
#include "longhaul/config/special_codecs.h"

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

void check_tasks(const RunConfig& c) {
  std::set<std::string> names;
  for (const TaskSource& task : c.validation.tasks) {
    if (names.insert(task.name).second) continue;
    fail_key(c, "validation.tasks",
             "validation.tasks has two tasks named \"{}\"; names must differ", task.name);
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

void check_pack(const RunConfig& c, const WarnUnused& unused) {
  const bool whole = c.data.pack == PackKind::Whole;
  unused(!whole && c.data.too_long != TooLong::Drop, "data.too_long",
         "data.pack = \"stream\" leaves no document out for its length");
  if (!whole) return;
  if (!c.data.document_mask) {
    fail_key(c, "data.document_mask",
             "data.document_mask = false: in rows of whole documents (data.pack = "
             "\"whole\") attention stays inside each document; leave "
             "data.document_mask out");
  }
  for (const TrainSource& source : c.data.train) {
    if (source.synthetic == 0) continue;
    fail_key(c, "data.pack",
             "data.pack = \"whole\": synthetic sequences hold no documents; leave "
             "data.pack out, or train on a token store");
  }
}

}  // namespace

void resolve_data(RunConfig& config) {
  DataSection& data = config.data;
  if (data.pack == PackKind::Whole && !given(config, "data.document_mask")) {
    data.document_mask = true;
  }
}

void check_data(const RunConfig& c, Warnings& warnings) {
  if (c.data.train.empty()) {
    fail_key(c, "data.train", "data.train is empty; give at least one source");
  }
  check_sources(c, warnings);
  check_tasks(c);
  check_weights(c, warnings);
  const WarnUnused unused{c, warnings};
  check_pack(c, unused);
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
  unused(none && c.validation.tasks.empty() &&
             c.validation.every != ValidationSection{}.every,
         "validation.every", "data.validation is empty");
  unused(none && c.validation.batches != ValidationSection{}.batches,
         "validation.batches", "data.validation is empty");
}

}  // namespace longhaul::config

namespace longhaul {
constexpr auto names_of(PackKind) { return std::array{"stream", "whole"}; }
constexpr auto names_of(TooLong) { return std::array{"drop", "cut"}; }

using config::Fields;
using config::make_field;
using enum ResumeClass;

namespace {
/// More than so many sequences, or tokens of a sequence, are typing errors.
constexpr double kMostSequencesGiven = 1e9;
/// Weights are relative. The sum of larger weights could overflow.
constexpr double kMostWeight = 1e15;

/// Returns what is wrong with a name that logs and metrics take, or with a path beside it
/// that is missing.
std::string problem_of_named(const std::string& name, bool lacks_path) {
  if (name.empty() || lacks_path) return ": needs both name and path";
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  if (name.find_first_not_of(kAllowed) == std::string::npos) return "";
  return fmt::format(
      ".name = \"{}\": letters, digits, '_', '.' and '-' only, since it names log lines "
      "and metrics",
      name);
}
}  // namespace

Fields fields_of(TrainSource& s) {
  return {
      make_field("path", s.path, Logged, "token stores or data sets")
          .may_be_address()
          .written_unless([&s] { return s.path.empty(); }),
      make_field("synthetic", s.synthetic, Logged, "so many sequences of random tokens")
          .within(1, kMostSequencesGiven)
          .written_unless([&s] { return s.synthetic == 0; }),
      make_field("weight", s.weight, Logged, "share of tokens").within(0, kMostWeight),
      make_field("max_epochs", s.max_epochs, Logged, "passes at most").above(0),
      make_field("field", s.field, Logged, "of ready ids").written_unless([&s] {
        return s.field == TrainSource{}.field;
      }),
  };
}

Fields fields_of(WeightsFrom& s) {
  return {
      make_field("step", s.step, Logged, "the first step with them")
          .within(2, static_cast<double>(config::kMaxSteps)),
      make_field("weights", s.weights, Logged, "one per source").within(0, kMostWeight),
  };
}

Fields fields_of(ValidationSource& s) {
  return {
      make_field("name", s.name, Free, "what logs and metrics call it"),
      make_field("path", s.path, Free, "token stores or data sets").may_be_address(),
      make_field("field", s.field, Free, "of ready ids").written_unless([&s] {
        return s.field == ValidationSource{}.field;
      }),
      make_field("stop_above", s.stop_above, Free, "nats above its first loss")
          .at_least(0),
  };
}

Fields fields_of(TaskSource& s) {
  return {
      make_field("name", s.name, Free, "what logs and metrics call it"),
      make_field("path", s.path, Free, "a file of samples").may_be_address(),
  };
}

Fields fields_of(DataSection& s) {
  return {
      make_field("seq_len", s.seq_len, Logged,
                 "tokens per sequence; the last one is a target only")
          .within(2, kMostSequencesGiven)
          .must_be_given(),
      make_field("shuffle", s.shuffle, Match,
                 "random order from run.seed; false: the order of the store"),
      make_field("pack", s.pack, Logged,
                 "rows of token stores. stream: documents one after another, cut where a "
                 "row ends; whole: as many whole documents as fit, then padding, which "
                 "implies document_mask"),
      make_field("too_long", s.too_long, Logged,
                 "with pack = \"whole\", a document of more than seq_len tokens: drop "
                 "leaves it out, cut keeps its first seq_len tokens"),
      make_field("document_mask", s.document_mask, Logged,
                 "attention and positions stop at document boundaries"),
      make_field("verify", s.verify, Free,
                 "each 1 MiB block of a token store is compared with its hash when it is "
                 "first read; false: only 'longhaul verify' compares them"),
      make_field("train", s.train, Logged,
                 "training sources: { path, weight } or { synthetic = sequences }. The "
                 "path is a token store, a save_to_disk directory, JSON lines, Parquet "
                 "or Arrow of ids, a directory of them, a pattern, an address of one of "
                 "these, or a list. Also "
                 "max_epochs: largest number of passes over the source; field: the field "
                 "of a record that holds the token ids, \"input_ids\" if not given")
          .must_be_given(),
      make_field(
          "changes", s.changes, Logged,
          "weights of the sources from a step on: { step, weights = [one per source] }"),
      make_field("cache", s.cache, Free,
                 "directory for the packed form of data that holds ready ids, for plans "
                 "of rows of whole documents, and, in its directory objects, for local "
                 "copies of what addresses name")
          .when_absent("run.dir/data, and longhaul/objects in the user's cache"),
      make_field("cache_gb", s.cache_gb, Free,
                 "most that a machine's local copies of objects take, in 10^9 bytes; the "
                 "longest unused go first; 0: no limit")
          .at_least(0),
      make_field("validation", s.validation, Free,
                 "held-out sets: { name, path }; path and field: as in train. With "
                 "stop_above the run saves and ends with 79 once the set's loss is more "
                 "than this many nats above its loss in the run's first validation"),
  };
}

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
  return problem_of_named(item.name, item.path.empty());
}

std::string problem_of(const TaskSource& item) {
  return problem_of_named(item.name, item.path.empty());
}

}  // namespace longhaul
