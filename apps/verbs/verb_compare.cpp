#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "apps/objects/local_input.h"
#include "apps/program.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/examine/compare.h"

namespace longhaul::apps {
namespace {

struct CompareOptions {
  std::string first;
  std::string second;
  double tolerance = 1e-5;
  int64_t lines = 20;
  bool json = false;
};

checkpoint::CheckpointReader open(const std::string& path,
                                  const objects::Access& objects) {
  std::vector<std::string> skipped;
  const auto found = checkpoint::find_checkpoint(path, &skipped);
  for (const std::string& line : skipped) {
    say_warning(objects.with_addresses(fmt::format("{}: {}", path, line)));
  }
  if (!found && fs::exists(fs::path(path) / "config.json")) {
    fail_input("compare",
               "{} is a Hugging Face directory; checkpoints and captures of runs are "
               "compared, not exports of them",
               path);
  }
  if (!found) {
    fail_input("compare",
               "{} is no checkpoint, no capture and no run with a checkpoint; captures "
               "are in run.dir/captures/step_N",
               path);
  }
  return checkpoint::CheckpointReader::open(
      *found, checkpoint::CheckpointReader::Tensors::MayBeParts);
}

struct Row {
  checkpoint::TensorDifference tensor;
  double relative = 0.0;
};

/// Returns the rows with the worst first; tensors that only one of the two has come last.
std::vector<Row> rows_of(const checkpoint::Comparison& comparison) {
  std::vector<Row> rows;
  for (const auto& tensor : comparison.tensors) {
    rows.push_back({tensor, comparison.relative(tensor)});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    const auto rank = [](const Row& row) {
      const bool worst = !row.tensor.same_shape || std::isnan(row.relative);
      if (worst) return std::numeric_limits<double>::infinity();
      return row.tensor.elements == 0 ? -1.0 : row.relative;
    };
    return rank(a) > rank(b);
  });
  return rows;
}

std::string verdict_of(const Row& row, double tolerance) {
  if (!row.tensor.same_shape) return "other shape";
  if (row.tensor.elements == 0) return "not in both";
  if (row.relative <= tolerance) return row.relative == 0.0 ? "equal" : "ok";
  return "DIFFERS";
}

void print_json(const std::vector<Row>& rows, double tolerance) {
  Json list = Json::array();
  for (const Row& row : rows) {
    list.push_back({{"kind", row.tensor.kind},
                    {"name", row.tensor.name},
                    {"elements", row.tensor.elements},
                    {"norm", row.tensor.norm},
                    {"relative", row.relative},
                    {"largest", row.tensor.largest},
                    {"verdict", verdict_of(row, tolerance)}});
  }
  fmt::print("{}\n", json_text(list, 2));
}

void print_table(const std::vector<Row>& rows, const CompareOptions& options) {
  fmt::print("{:>10}  {:>10}  {:<11}  {}\n", "relative", "largest", "", "tensor");
  const auto all = static_cast<int64_t>(rows.size());
  const int64_t shown = options.lines == 0 ? all : std::min(all, options.lines);
  for (int64_t i = 0; i < shown; ++i) {
    const Row& row = rows[static_cast<size_t>(i)];
    fmt::print("{:>10.2e}  {:>10.2e}  {:<11}  {} {}\n", row.relative, row.tensor.largest,
               verdict_of(row, options.tolerance), row.tensor.kind, row.tensor.name);
  }
  if (shown < all) {
    fmt::print(
        "... {} more tensors, which differ no more than these (--lines 0 prints all)\n",
        all - shown);
  }
}

/// Compares two models. Returns 0 if they have tensors in common and all of these are
/// within the tolerance.
int run_compare(const CompareOptions& options, const objects::Access& objects) {
  const auto first = open(options.first, objects);
  const auto second = open(options.second, objects);
  const std::vector<Row> rows = rows_of(checkpoint::compare(first, second));
  if (options.json) {
    print_json(rows, options.tolerance);
  } else {
    print_table(rows, options);
  }
  int64_t compared = 0;
  int64_t apart = 0;
  for (const Row& row : rows) {
    const std::string verdict = verdict_of(row, options.tolerance);
    if (row.tensor.elements > 0) ++compared;
    if (verdict == "DIFFERS" || verdict == "other shape") ++apart;
  }
  if (!options.json) {
    fmt::print("{} compared, {} beyond {:g}\n", counted(compared, "tensor"), apart,
               options.tolerance);
  }
  return apart == 0 && compared > 0 ? 0 : 1;
}

}  // namespace

void add_compare(CLI::App& program, Outcome& outcome) {
  const auto options = std::make_shared<CompareOptions>();
  CLI::App* verb = program.add_subcommand(
      "compare", "Compares two checkpoints or captures, whatever their layouts");
  verb->add_option("first", options->first, "a checkpoint, a capture, or a run")
      ->required();
  verb->add_option("second", options->second,
                   "a checkpoint, a capture, or a run, to which the differences relate")
      ->required();
  verb->add_option(
          "--tolerance", options->tolerance,
          "largest norm of a difference that passes, relative to the tensor's norm")
      ->capture_default_str();
  verb->add_option("--lines", options->lines,
                   "number of tensors to print, the largest differences first; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  verb->add_flag("--json", options->json, "every tensor, as JSON");
  verb->footer(
      "Examples:\n"
      "  longhaul compare runs/tp2/captures/step_00000001 "
      "runs/one/captures/step_00000001\n"
      "  longhaul compare runs/a runs/b --tolerance 0\n"
      "Exit 1 where a tensor differs by more than the tolerance, or where the two have "
      "no tensor in common.");
  verb->callback([options, &outcome] {
    const LocalCheckpoint first(options->first, outcome.objects);
    const LocalCheckpoint second(options->second, outcome.objects);
    options->first = first.path();
    options->second = second.path();
    outcome.exit_code = run_compare(*options, outcome.objects);
  });
}

}  // namespace longhaul::apps
