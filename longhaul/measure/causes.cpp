#include "longhaul/measure/causes.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/json/lenient_json.h"

namespace longhaul::measure {
namespace {

constexpr const char* kProducts = "matrix products";
constexpr const char* kAttention = "attention";
constexpr const char* kUpdate = "optimizer and norm";
constexpr const char* kOutside = "outside of operations";

/// Patterns of operations' names with their causes. Where a name contains several
/// patterns, the first of these in the list counts.
constexpr std::array<std::pair<std::string_view, const char*>, 28> kCauses = {{
    {"wait: ", "waiting for other ranks"},
    {"attention", kAttention},
    {"adamw", kUpdate},
    {"lamb", kUpdate},
    {"squares", kUpdate},
    {"cross_entropy", "loss of the head"},
    {"longhaul::product", kProducts},
    {"longhaul::weight_gradient", kProducts},
    {"longhaul::grouped_", kProducts},
    {"longhaul::gather_rows", "copies, casts, fills, sums"},
    {"longhaul::sum_rows", "copies, casts, fills, sums"},
    {"longhaul::embedding", "embedding"},
    {"longhaul::", "norms, rotations, activations"},
    {"aten::mm", kProducts},
    {"aten::_grouped_mm", kProducts},
    {"aten::bmm", kProducts},
    {"aten::addmm", kProducts},
    {"aten::matmul", kProducts},
    {"aten::linear", kProducts},
    {"aten::mkldnn_linear", kProducts},
    {"aten::copy_", "copies, casts, fills, sums"},
    {"aten::fill_", "copies, casts, fills, sums"},
    {"aten::zero", "copies, casts, fills, sums"},
    {"aten::add", "copies, casts, fills, sums"},
    {"aten::cat", "copies, casts, fills, sums"},
    {"aten::sum", "copies, casts, fills, sums"},
    {"aten::index", "embedding"},
    {"aten::embedding", "embedding"},
}};

const char* cause_of(std::string_view name) {
  for (const auto& [pattern, cause] : kCauses) {
    if (name.find(pattern) != std::string_view::npos) return cause;
  }
  return "other operations and autograd";
}

double rate(const HardwareProfile& machine, std::string_view begin) {
  for (const MeasuredRate& one : machine.rates) {
    if (one.name.starts_with(begin)) return one.median;
  }
  return 0.0;
}

std::optional<double> time_of(double work, double per_second) {
  if (per_second <= 0.0) return std::nullopt;
  return work / per_second;
}

}  // namespace

std::vector<Cause> causes_of(const run::ProfileEvent& step, const StepWork& work,
                             const HardwareProfile& machine, const std::string& dtype) {
  std::map<std::string, double> seconds = {{kProducts, 0.0}};
  double told = 0.0;
  if (step.operations.is_array()) {
    for (const Json& row : step.operations) {
      if (!row.is_object() || !row.contains("name") || !row["name"].is_string()) continue;
      const double taken = number_at(row, "seconds");
      seconds[cause_of(row["name"].get_ref<const std::string&>())] += taken;
      told += taken;
    }
  }
  seconds[kOutside] = step.seconds - told;
  const std::map<std::string, std::optional<double>> at_rate = {
      {kProducts, time_of(work.product_flops,
                          dtype == "bf16" ? machine.peak_bf16 : machine.peak_fp32)},
      {kAttention,
       time_of(work.attention_flops,
               rate(machine, dtype == "bf16" ? "attention and backward"
                                             : "attention fp32 and backward"))},
      {kUpdate, time_of(work.update_bytes, rate(machine, "copy through memory"))}};
  std::vector<Cause> causes;
  for (const auto& [name, taken] : seconds) {
    const auto known = at_rate.find(name);
    causes.push_back(
        {name, taken, known == at_rate.end() ? std::nullopt : known->second});
  }
  std::ranges::stable_sort(causes, std::ranges::greater(), &Cause::seconds);
  return causes;
}

const run::ProfileEvent& typical_step(const std::vector<run::ProfileEvent>& steps) {
  LH_CHECK(!steps.empty(), "bench", "no step was profiled");
  std::vector<const run::ProfileEvent*> sorted;
  for (const run::ProfileEvent& step : steps) sorted.push_back(&step);
  std::ranges::sort(sorted, {}, [](const run::ProfileEvent* e) { return e->seconds; });
  return *sorted[sorted.size() / 2];
}

}  // namespace longhaul::measure
