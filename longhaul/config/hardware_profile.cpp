#include "longhaul/config/hardware_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "longhaul/base/error.h"
#include "longhaul/config/codec.h"

namespace longhaul {
namespace {

using config::Fields;
using config::make_field;

Fields machine_fields(HardwareProfile& p) {
  return {
      make_field("device", p.device, ResumeClass::Free, "what it was measured on")
          .must_be_given(),
      make_field("cpu", p.cpu, ResumeClass::Free, "its processor"),
      make_field("threads", p.threads, ResumeClass::Free, "of a rank").at_least(0),
      make_field("made", p.made, ResumeClass::Free, "by which program, and when"),
  };
}

Fields peak_fields(HardwareProfile& p) {
  return {
      make_field("bf16", p.peak_bf16, ResumeClass::Free, "dense products, FLOP/s")
          .at_least(0),
      make_field("fp32", p.peak_fp32, ResumeClass::Free, "dense products, FLOP/s")
          .at_least(0),
  };
}

Fields rate_fields(MeasuredRate& r) {
  return {
      make_field("name", r.name, ResumeClass::Free, "what was measured").must_be_given(),
      make_field("unit", r.unit, ResumeClass::Free, "of a second").must_be_given(),
      make_field("median", r.median, ResumeClass::Free, "of all rounds")
          .must_be_given()
          .above(0),
      make_field("low", r.low, ResumeClass::Free, "the slowest round").at_least(0),
      make_field("high", r.high, ResumeClass::Free, "the fastest round").at_least(0),
      make_field("to_first", r.to_first, ResumeClass::Free,
                 "median of the ratios to the first rate of the same round")
          .at_least(0),
  };
}

std::string section(const std::string& head, const Fields& fields) {
  std::string text = "\n" + head + "\n";
  for (const config::Entry& entry : config::get_fields(fields)) {
    text += fmt::format("{} = {}\n", config::print_key(entry.key),
                        config::print_value(entry.value));
  }
  return text;
}

const config::Table& table_of(const config::Value& value, const char* what) {
  const auto* table = std::get_if<config::Table>(&value.data);
  if (table == nullptr) config::fail_at(value.where, "{} is a table", what);
  return *table;
}

}  // namespace

const MeasuredRate* HardwareProfile::find(std::string_view name) const {
  const auto found = std::ranges::find(rates, name, &MeasuredRate::name);
  return found == rates.end() ? nullptr : &*found;
}

std::string to_toml(const HardwareProfile& profile) {
  HardwareProfile p = profile;
  std::string text = "# What a machine can do, measured by `longhaul bench`.\n";
  text += section("[machine]", machine_fields(p));
  text += section("[peak]", peak_fields(p));
  for (MeasuredRate& rate : p.rates) text += section("[[rate]]", rate_fields(rate));
  return text;
}

HardwareProfile parse_hardware_profile(std::string_view text, std::string_view name) {
  HardwareProfile profile;
  const config::Table file = config::parse_toml(text, name);
  const config::Entry* machine = config::find(file, "machine");
  if (machine == nullptr) {
    config::fail_at(
        std::string(name),
        "the file has no [machine], so it is no profile that longhaul bench wrote");
  }
  for (const config::Entry& entry : file) {
    if (entry.key == "machine") {
      config::set_fields(machine_fields(profile), table_of(entry.value, "machine"),
                         "machine");
    } else if (entry.key == "peak") {
      config::set_fields(peak_fields(profile), table_of(entry.value, "peak"), "peak");
    } else if (entry.key == "rate") {
      const auto* array = std::get_if<config::Array>(&entry.value.data);
      if (array == nullptr) config::fail_at(entry.where, "rate is an array of tables");
      for (const config::Value& item : *array) {
        config::set_fields(rate_fields(profile.rates.emplace_back()),
                           table_of(item, "rate"), "rate");
      }
    } else {
      config::fail_at(entry.where, "a profile has no '{}'", entry.key);
    }
  }
  return profile;
}

void check_machine(const HardwareProfile& profile, std::string_view name,
                   std::string_view device, std::string_view cpu, int64_t threads) {
  const auto check = [&](std::string_view what, std::string_view theirs,
                         std::string_view ours, const std::string& how = {}) {
    if (theirs == ours) return;
    fail_config("hardware",
                "{} was measured on a machine with {} {}, this one has {}; measure it "
                "here: {}longhaul bench --out {}",
                name, what, theirs, ours, how, name);
  };
  check("device", profile.device, device);
  if (device != "cpu") return;  // the processor only feeds the device
  check("processor", profile.cpu, cpu);
  // The message sets OMP_NUM_THREADS, since the run may use another number of threads
  // than a measurement uses by default.
  check("threads", std::to_string(profile.threads), std::to_string(threads),
        fmt::format("OMP_NUM_THREADS={} ", threads));
}

std::string rate_text(double rate, std::string_view unit) {
  constexpr std::array<const char*, 5> kSteps = {"", "k", "M", "G", "T"};
  size_t step = 0;
  while (rate >= 999.5 && step + 1 < kSteps.size()) {
    rate /= 1000.0;
    ++step;
  }
  return fmt::format("{:.3g} {}{}/s", rate, kSteps[step], unit);
}

}  // namespace longhaul
