#include "longhaul/monitor/profile_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/json/lenient_json.h"
#include "longhaul/base/text.h"
#include "longhaul/monitor/html.h"
#include "longhaul/monitor/plain_text.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kLongestOperation = 80;
constexpr size_t kRowsOfReport = 24;
constexpr size_t kRowsOfLog = 16;

std::string text_of(const Json& entry, const char* key) {
  return plain_text(text_at(entry, key, "?"), kLongestOperation);
}

std::string name_of(const Json& entry) { return text_of(entry, "name"); }

double share(const run::ProfileEvent& event, double seconds) {
  return event.seconds > 0.0 ? 100.0 * seconds / event.seconds : 0.0;
}

}  // namespace

std::vector<ProfileRow> profile_rows(const run::ProfileEvent& event, size_t most) {
  std::vector<ProfileRow> rows;
  ProfileRow others;
  double told = 0.0;
  int64_t left_out = 0;
  for (const Json* entry : objects_in(event.operations)) {
    ProfileRow row{name_of(*entry), integer_at(*entry, "calls"),
                   number_at(*entry, "seconds")};
    told += row.seconds;
    if (rows.size() < most) {
      rows.push_back(std::move(row));
      continue;
    }
    ++left_out;
    others.calls += row.calls;
    others.seconds += row.seconds;
  }
  if (left_out > 0) {
    others.name = fmt::format("{} others", left_out);
    rows.push_back(std::move(others));
  }
  rows.push_back({"outside of operations", 0, event.seconds - told});
  return rows;
}

std::string ProductRow::title() const {
  const size_t colons = name.rfind(':');
  return (colons == std::string::npos ? name : name.substr(colons + 1)) + " " + shape;
}

std::vector<ProductRow> product_rows(const run::ProfileEvent& event) {
  std::vector<ProductRow> rows;
  for (const Json* entry : objects_in(event.products)) {
    rows.push_back({name_of(*entry), text_of(*entry, "shape"),
                    integer_at(*entry, "calls"), number_at(*entry, "seconds"),
                    number_at(*entry, "flops")});
  }
  return rows;
}

std::string describe_profile(const run::ProfileEvent& event) {
  std::string text = fmt::format("step {}: {:.3f} s", event.step, event.seconds);
  for (const ProfileRow& row : profile_rows(event, 3)) {
    text += fmt::format(", {} {:.1f}%", row.name, share(event, row.seconds));
  }
  return text;
}

std::string profile_section(const RunFiles& run) {
  const auto& events = run.events();
  const auto newest = std::find_if(events.rbegin(), events.rend(), [](const Event& e) {
    return e.kind == run::ProfileEvent::kKind;
  });
  if (newest == events.rend()) return {};
  const auto event = newest->as<run::ProfileEvent>();
  std::string text = fmt::format(
      "<h2>A step</h2><section class=\"card\"><h3>Profile of step {}</h3><p>{:.3f} s on "
      "rank 0 (times: {})",
      grouped(event.step), event.seconds, escape(plain_text(event.clock, 40)));
  for (const Json* part : objects_in(event.parts)) {
    text +=
        fmt::format(", {} {:.3f} s", escape(name_of(*part)), number_at(*part, "seconds"));
  }
  text += ".</p>";
  std::string rows =
      html_row("th", {{"operation"}, {"calls", "n"}, {"seconds", "n"}, {"share", "n"}});
  const auto seconds_and_share = [&](double seconds) {
    return std::pair(fmt::format("{:.4f}", seconds),
                     fmt::format("{:.1f}%", share(event, seconds)));
  };
  for (const ProfileRow& row : profile_rows(event, kRowsOfReport)) {
    const auto [seconds, part] = seconds_and_share(row.seconds);
    rows += html_row("td", {{escape(row.name)},
                            {row.calls > 0 ? grouped(row.calls) : "–", "n"},
                            {seconds, "n"},
                            {part, "n"}});
  }
  text += html_table(rows);
  const std::vector<ProductRow> products = product_rows(event);
  if (!products.empty()) {
    rows = html_row("th", {{"product, rows × summed × columns"},
                           {"calls", "n"},
                           {"seconds", "n"},
                           {"share", "n"},
                           {"TFLOP/s", "n"}});
    for (const ProductRow& row : products) {
      const auto [seconds, part] = seconds_and_share(row.seconds);
      rows += html_row("td", {{escape(row.title())},
                              {grouped(row.calls), "n"},
                              {seconds, "n"},
                              {part, "n"},
                              {fmt::format("{:.3g}", row.rate() * 1e-12), "n"}});
    }
    text += html_table(rows);
  }
  return text + "</section>";
}

std::vector<std::string> profile_lines(const run::ProfileEvent& event) {
  std::string head =
      fmt::format("profile of step {}: {:.3f} s on rank 0", event.step, event.seconds);
  for (const Json& part : event.parts) {
    head += fmt::format(", {} {:.3f}", part["name"].get<std::string>(),
                        part["seconds"].get<double>());
  }
  std::vector<std::string> lines = {
      head, fmt::format("  {:<44} {:>7} {:>10} {:>7}", "operation (" + event.clock + ")",
                        "calls", "seconds", "share")};
  for (const ProfileRow& row : profile_rows(event, kRowsOfLog)) {
    lines.push_back(fmt::format("  {:<44} {:>7} {:>10.4f} {:>6.1f}%", row.name,
                                row.calls > 0 ? std::to_string(row.calls) : "",
                                row.seconds, 100.0 * row.seconds / event.seconds));
  }
  const std::vector<ProductRow> products = product_rows(event);
  if (products.empty()) return lines;
  lines.push_back(fmt::format("  {:<44} {:>7} {:>10} {:>7} {:>8}",
                              "product, rows x summed x columns", "calls", "seconds",
                              "share", "TFLOP/s"));
  for (const ProductRow& row : products) {
    lines.push_back(fmt::format("  {:<44} {:>7} {:>10.4f} {:>6.1f}% {:>8.3g}",
                                row.title(), row.calls, row.seconds,
                                100.0 * row.seconds / event.seconds, row.rate() * 1e-12));
  }
  return lines;
}

}  // namespace longhaul::monitor
