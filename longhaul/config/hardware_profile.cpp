#include "longhaul/config/hardware_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

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
      make_field("comparison_only", p.comparison_only, ResumeClass::Free,
                 "why train does not run on it"),
  };
}

Fields peak_fields(HardwareProfile& p) {
  return {
      make_field("bf16", p.peak_bf16, ResumeClass::Free, "dense products, FLOP/s")
          .at_least(0),
      make_field("fp32", p.peak_fp32, ResumeClass::Free, "dense products, FLOP/s")
          .at_least(0),
      make_field("memory", p.peak_memory, ResumeClass::Free, "the device's memory, B/s")
          .at_least(0),
  };
}

Fields efficiency_fields(HardwareProfile& p) {
  EfficiencyProfile& e = p.efficiency;
  return {
      make_field("products", e.products, ResumeClass::Free, "share of the peak")
          .within(0, 1),
      make_field("attention", e.attention, ResumeClass::Free, "share of the peak")
          .within(0, 1),
      make_field("memory", e.memory, ResumeClass::Free, "share of the peak").within(0, 1),
  };
}

Fields link_fields(LinkProfile& link) {
  return {
      make_field("bytes_per_s", link.bytes_per_s, ResumeClass::Free, "that a rank sends")
          .must_be_given()
          .above(0),
      make_field("latency_s", link.latency_s, ResumeClass::Free, "of one message")
          .at_least(0),
  };
}

Fields node_fields(NodeProfile& n) {
  return {
      make_field("ranks", n.ranks, ResumeClass::Free, "devices of a node")
          .within(0, 4096),
      make_field("device_bytes", n.device_bytes, ResumeClass::Free, "memory of a device")
          .at_least(0),
      make_field("context_bytes", n.context_bytes, ResumeClass::Free,
                 "what driver and libraries take of it")
          .at_least(0),
      make_field("host_bytes", n.host_bytes, ResumeClass::Free, "memory of a node")
          .at_least(0),
      make_field("copy_bytes_per_s", n.copy_bytes_per_s, ResumeClass::Free,
                 "of a device to the memory of its node")
          .at_least(0),
      make_field("disk_bytes_per_s", n.disk_bytes_per_s, ResumeClass::Free,
                 "of a node to the file system of checkpoints")
          .at_least(0),
      make_field("store_bytes_per_s", n.store_bytes_per_s, ResumeClass::Free,
                 "of a node to an object store")
          .at_least(0),
      make_field("watts", n.watts, ResumeClass::Free, "of a node under load").at_least(0),
      make_field("price_per_hour", n.price_per_hour, ResumeClass::Free, "of a node")
          .at_least(0),
      make_field("currency", n.currency, ResumeClass::Free, "of the price"),
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

Fields exchange_fields(ExchangeProfile& e) {
  Fields fields = {
      make_field("group", e.group, ResumeClass::Free, "of which ranks").must_be_given(),
      make_field("operation", e.operation, ResumeClass::Free, "what was measured")
          .must_be_given(),
      make_field("ranks", e.ranks, ResumeClass::Free, "of the group")
          .must_be_given()
          .at_least(2),
      make_field("on_node", e.on_node, ResumeClass::Free, "ranks of the group on a node")
          .must_be_given()
          .at_least(1),
  };
  for (config::Field& field : link_fields(e.link)) fields.push_back(std::move(field));
  return fields;
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

std::string grouped_product_name(bool bf16, int64_t rows) {
  return fmt::format("grouped product {} {} rows", bf16 ? "bf16" : "fp32", rows);
}

const MeasuredRate* HardwareProfile::find(std::string_view name) const {
  const auto found = std::ranges::find(rates, name, &MeasuredRate::name);
  return found == rates.end() ? nullptr : &*found;
}

void HardwareProfile::put_rates(const std::vector<MeasuredRate>& newer) {
  for (const MeasuredRate& rate : newer) {
    std::erase_if(rates, [&](const MeasuredRate& old) { return old.name == rate.name; });
    rates.push_back(rate);
  }
}

void HardwareProfile::put_exchanges(const std::vector<ExchangeProfile>& newer) {
  const auto what = [](const ExchangeProfile& one) {
    return std::tie(one.group, one.operation, one.ranks, one.on_node);
  };
  std::erase_if(exchanges, [&](const ExchangeProfile& old) {
    return std::ranges::any_of(
        newer, [&](const ExchangeProfile& one) { return what(one) == what(old); });
  });
  exchanges.insert(exchanges.begin(), newer.begin(), newer.end());
}

std::string to_toml(const HardwareProfile& profile) {
  HardwareProfile p = profile;
  std::string text = "# What a machine can do, measured by `longhaul bench`.\n";
  text += section("[machine]", machine_fields(p));
  text += section("[peak]", peak_fields(p));
  if (p.efficiency.products > 0) text += section("[efficiency]", efficiency_fields(p));
  if (p.node.ranks > 0) text += section("[node]", node_fields(p.node));
  if (p.inside.bytes_per_s > 0) text += section("[inside]", link_fields(p.inside));
  if (p.between.bytes_per_s > 0) text += section("[between]", link_fields(p.between));
  for (MeasuredRate& rate : p.rates) text += section("[[rate]]", rate_fields(rate));
  for (ExchangeProfile& exchange : p.exchanges) {
    text += section("[[exchange]]", exchange_fields(exchange));
  }
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
  const std::map<std::string, Fields, std::less<>> sections = {
      {"machine", machine_fields(profile)},
      {"peak", peak_fields(profile)},
      {"efficiency", efficiency_fields(profile)},
      {"node", node_fields(profile.node)},
      {"inside", link_fields(profile.inside)},
      {"between", link_fields(profile.between)}};
  for (const config::Entry& entry : file) {
    if (const auto fields = sections.find(entry.key); fields != sections.end()) {
      config::set_fields(fields->second, table_of(entry.value, entry.key.c_str()),
                         entry.key);
    } else if (entry.key == "rate" || entry.key == "exchange") {
      const auto* array = std::get_if<config::Array>(&entry.value.data);
      if (array == nullptr) {
        config::fail_at(entry.where, "{} is an array of tables", entry.key);
      }
      for (const config::Value& item : *array) {
        config::set_fields(entry.key == "rate"
                               ? rate_fields(profile.rates.emplace_back())
                               : exchange_fields(profile.exchanges.emplace_back()),
                           table_of(item, entry.key.c_str()), entry.key);
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
