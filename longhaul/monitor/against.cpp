#include "longhaul/monitor/against.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "longhaul/base/error.h"
#include "longhaul/base/json/lenient_json.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"
#include "longhaul/monitor/plain_text.h"

namespace longhaul::monitor {
namespace {

constexpr uint64_t kLargestFile = uint64_t{1} << 30;
constexpr int64_t kMostSteps = int64_t{1} << 53;
constexpr const char* kSpace = " \t\r";

/// Splits a line by commas, semicolons or tabs if there are any, else by spaces.
std::vector<std::string_view> fields_of(std::string_view line) {
  const char* separators =
      line.find_first_of(",;\t") == std::string_view::npos ? " " : ",;\t";
  std::vector<std::string_view> fields;
  while (true) {
    const size_t end = line.find_first_of(separators);
    const std::string_view field = trimmed(line.substr(0, end), kSpace);
    if (!field.empty() || separators[0] != ' ') fields.push_back(field);
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

/// Reads a file of golden losses line by line.
class GoldenFile {
 public:
  explicit GoldenFile(std::string name) : name_(std::move(name)) {}

  void line(std::string_view text) {
    ++number_;
    const bool json = text.starts_with('{');
    text = trimmed(json ? text : text.substr(0, text.find('#')), kSpace);
    if (text.empty()) return;
    if (json) return json_line(text);
    const std::vector<std::string_view> fields = fields_of(text);
    if (found_.loss.empty() && !whole_number<double>(fields[0])) return head(fields);
    if (fields.size() == 1)
      return add(static_cast<double>(found_.loss.size()) + 1, fields[0]);
    if (fields.size() <= std::max(step_column_, loss_column_)) {
      fail("has too few columns");
    }
    const auto step = whole_number<double>(fields[step_column_]);
    if (!step) fail("has no number for the step");
    add(*step, fields[loss_column_]);
  }

  Reference take() {
    if (found_.loss.empty()) {
      fail_input("report",
                 "{}: no loss in it; give a run directory, or a file with a number, or a "
                 "step and a number, a line",
                 name_);
    }
    const double rate = median(rates_);
    if (std::isfinite(rate)) found_.seqs_per_s = rate;
    return std::move(found_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    fail_input("report", "{}:{}: the line {}", name_, number_, what);
  }

  void head(const std::vector<std::string_view>& fields) {
    const auto column = [&](std::string_view name) {
      const auto found = std::ranges::find(fields, name);
      if (found == fields.end()) {
        fail(fmt::format("is no number and no head that names '{}': {}", name,
                         plain_text(fields[0], 60)));
      }
      return static_cast<size_t>(found - fields.begin());
    };
    step_column_ = column("step");
    loss_column_ = column(run::kLossKey);
  }

  void add(double step, std::string_view text) {
    const auto loss = whole_number<double>(text);
    if (!loss) fail("has no number for the loss: " + plain_text(text, 60));
    add_point(step, *loss);
  }

  void add_point(double step, double loss) {
    if (!(step >= 0.0 && step <= static_cast<double>(kMostSteps)) ||
        step != std::floor(step)) {
      fail("has no whole number for the step");
    }
    found_.loss[static_cast<int64_t>(step)] = loss;
  }

  // Passes over lines of metrics.jsonl that are no steps, such as validations.
  void json_line(std::string_view text) {
    const Json json = parse_json(text, fmt::format("{}:{}", name_, number_), 16);
    if (json.contains(run::kValidationKey)) return;
    const double none = std::numeric_limits<double>::quiet_NaN();
    const double step = number_at(json, "step", -1.0);
    if (step < 0.0 || !json.contains(run::kLossKey)) fail("has no \"step\" and \"loss\"");
    add_point(step, number_at(json, run::kLossKey, none));
    rates_.push_back(number_at(json, run::kSeqsPerSecondKey, none));
  }

  std::string name_;
  int64_t number_ = 0;
  size_t step_column_ = 0;
  size_t loss_column_ = 1;
  Reference found_;
  std::vector<double> rates_;
};

/// Returns how far a loss is from the reference's, as a share of the latter; infinite if
/// one of them is not finite.
double distance(double loss, double golden) {
  if (!std::isfinite(golden) || !std::isfinite(loss)) {
    return std::numeric_limits<double>::infinity();
  }
  if (loss == golden) return 0.0;
  return golden == 0.0 ? std::numeric_limits<double>::infinity()
                       : std::abs(loss - golden) / std::abs(golden);
}

struct Comparison {
  int64_t common = 0;
  int64_t undefined = 0;  ///< steps without a loss in both, which say nothing
  int64_t within = 0;
  int64_t first_outside = -1;
  int64_t worst_step = -1;
  double worst = -1.0;
};

Comparison compare_losses(const Reference& run, const Reference& reference,
                          int64_t from_step, double rtol) {
  Comparison found;
  for (auto it = run.loss.lower_bound(from_step); it != run.loss.end(); ++it) {
    const auto golden = reference.loss.find(it->first);
    if (golden == reference.loss.end()) continue;
    if (!std::isfinite(it->second) && !std::isfinite(golden->second)) {
      ++found.undefined;
      continue;
    }
    ++found.common;
    const double far = distance(it->second, golden->second);
    if (far <= rtol) {
      ++found.within;
    } else if (found.first_outside < 0) {
      found.first_outside = it->first;
    }
    if (far > found.worst) {
      found.worst = far;
      found.worst_step = it->first;
    }
  }
  return found;
}

std::string range_of(const Reference& reference) {
  if (reference.loss.empty()) return "no step";
  return fmt::format("steps {} to {}", grouped(reference.loss.begin()->first),
                     grouped(reference.loss.rbegin()->first));
}

std::string at_step(const Reference& run, const Reference& reference, int64_t step) {
  const double loss = run.loss.at(step);
  const double golden = reference.loss.at(step);
  return fmt::format("step {}: {:.5g} against {:.5g} ({:.2f}%)", grouped(step), loss,
                     golden, 100.0 * distance(loss, golden));
}

bool judge_loss(const Reference& run, const Reference& reference,
                const AgainstOptions& options, AgainstResult& result) {
  int64_t from_step = options.from_step.value_or(kGateStep);
  Comparison found = compare_losses(run, reference, from_step, options.rtol);
  if (found.common == 0 && !options.from_step) {
    from_step = 0;
    found = compare_losses(run, reference, from_step, options.rtol);
    if (found.common > 0) {
      result.lines.push_back(fmt::format(
          "no common step from step {} on (the run has {}, the reference {}): all common "
          "steps are compared",
          kGateStep, range_of(run), range_of(reference)));
    }
  }
  if (found.common == 0) {
    fail_input("report",
               "no common step{} from step {} on: the run has {}, the reference {}; "
               "choose another with --from-step",
               found.undefined > 0 ? " with a finite loss" : "", from_step, range_of(run),
               range_of(reference));
  }
  const double share =
      static_cast<double>(found.within) / static_cast<double>(found.common);
  const bool passed = share >= options.points;
  std::string line = fmt::format(
      "loss: {}: {:.2f}% of {} from step {} on within {:g}% of the reference (needs "
      "{:g}%)",
      passed ? "holds" : "MISSES", 100.0 * share, counted(found.common, "point"),
      from_step, 100.0 * options.rtol, 100.0 * options.points);
  if (found.first_outside >= 0) {
    line += fmt::format("; the first outside is {}; the worst {}",
                        at_step(run, reference, found.first_outside),
                        at_step(run, reference, found.worst_step));
  } else {
    line += "; the worst is " + at_step(run, reference, found.worst_step);
  }
  if (found.undefined > 0) {
    line += fmt::format("; {} without a finite loss in both left out",
                        counted(found.undefined, "step"));
  }
  result.lines.push_back(std::move(line));
  result.json[run::kLossKey] = {{"passed", passed},
                                {"from_step", from_step},
                                {"points", found.common},
                                {"within", found.within},
                                {"undefined", found.undefined},
                                {"share", share},
                                {"first_outside", found.first_outside},
                                {"worst_step", found.worst_step},
                                {"worst", found.worst}};
  return passed;
}

bool judge_throughput(const Reference& run, const Reference& reference, double rtol,
                      AgainstResult& result) {
  const auto known = [](const Reference& one, const char* which) {
    const double rate = one.seqs_per_s.value_or(0.0);
    if (rate > 0.0) return rate;
    fail_input("report", "the {} says no throughput ({}); leave --throughput-rtol out",
               which, run::kSeqsPerSecondKey);
  };
  const double golden = known(reference, "reference");
  const double ours = known(run, "run");
  const double ratio = ours / golden;
  const bool passed = ratio >= 1.0 - rtol;
  result.lines.push_back(fmt::format(
      "throughput: {}: median {:.4g} sequences/s against {:.4g} ({:.1f}%; needs {:g}%)",
      passed ? "holds" : "MISSES", ours, golden, 100.0 * ratio, 100.0 * (1.0 - rtol)));
  result.json["throughput"] = {{"passed", passed},
                               {run::kSeqsPerSecondKey, ours},
                               {"reference", golden},
                               {"ratio", ratio}};
  return passed;
}

}  // namespace

Reference reference_of(const Records& records) {
  Reference out;
  for (const size_t at : records.counted()) {
    const run::StepRecord& record = records.all()[at];
    out.loss.emplace_hint(out.loss.end(), record.step, record.loss);
  }
  const double rate = median_throughput(records);
  if (std::isfinite(rate)) out.seqs_per_s = rate;
  return out;
}

Reference read_reference(const fs::path& path) {
  if (is_seen_directory(path)) {
    RunFiles run(path);
    run.refresh();
    return reference_of(run.records());
  }
  const std::string text = read_text(path, kLargestFile);
  GoldenFile golden(path.string());
  for (const std::string_view line : lines_of(text)) golden.line(line);
  return golden.take();
}

AgainstResult hold_against(const Reference& run, const Reference& reference,
                           const AgainstOptions& options) {
  AgainstResult result;
  result.json = Json::object();
  result.passed = judge_loss(run, reference, options, result);
  if (options.throughput_rtol) {
    const bool fast = judge_throughput(run, reference, *options.throughput_rtol, result);
    result.passed = result.passed && fast;
  }
  result.json["passed"] = result.passed;
  return result;
}

}  // namespace longhaul::monitor
