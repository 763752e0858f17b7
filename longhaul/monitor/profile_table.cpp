#include "longhaul/monitor/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "longhaul/base/lenient_json.h"
#include "longhaul/base/text.h"
#include "longhaul/monitor/plain_text.h"
#include "longhaul/monitor/plot.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kLongestOperation = 80;
constexpr size_t kRowsOfReport = 24;

std::string text_of(const Json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_string()) return "?";
  return plain_text(found->get_ref<const std::string&>(), kLongestOperation);
}

std::string name_of(const Json& entry) { return text_of(entry, "name"); }

double share(const ProfileEvent& event, double seconds) {
  return event.seconds > 0.0 ? 100.0 * seconds / event.seconds : 0.0;
}

}  // namespace

std::vector<ProfileRow> profile_rows(const ProfileEvent& event, size_t most) {
  std::vector<ProfileRow> rows;
  ProfileRow others;
  double told = 0.0;
  int64_t left_out = 0;
  if (event.operations.is_array()) {
    for (const Json& entry : event.operations) {
      if (!entry.is_object()) continue;
      ProfileRow row{name_of(entry), integer_at(entry, "calls"),
                     number_at(entry, "seconds")};
      told += row.seconds;
      if (rows.size() < most) {
        rows.push_back(std::move(row));
        continue;
      }
      ++left_out;
      others.calls += row.calls;
      others.seconds += row.seconds;
    }
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

std::vector<ProductRow> product_rows(const ProfileEvent& event) {
  std::vector<ProductRow> rows;
  if (!event.products.is_array()) return rows;
  for (const Json& entry : event.products) {
    if (!entry.is_object()) continue;
    rows.push_back({name_of(entry), text_of(entry, "shape"), integer_at(entry, "calls"),
                    number_at(entry, "seconds"), number_at(entry, "flops")});
  }
  return rows;
}

std::string describe_profile(const ProfileEvent& event) {
  std::string text = fmt::format("step {}: {:.3f} s", event.step, event.seconds);
  for (const ProfileRow& row : profile_rows(event, 3)) {
    text += fmt::format(", {} {:.1f}%", row.name, share(event, row.seconds));
  }
  return text;
}

std::string profile_section(const RunFiles& run) {
  const auto& events = run.events();
  const auto newest = std::find_if(events.rbegin(), events.rend(), [](const Event& e) {
    return e.kind == ProfileEvent::kKind;
  });
  if (newest == events.rend()) return {};
  const auto event = newest->as<ProfileEvent>();
  const auto out = [](std::string& text) { return std::back_inserter(text); };
  std::string text = fmt::format(
      "<h2>A step</h2><section class=\"card\"><h3>Profile of step {}</h3><p>{:.3f} s on "
      "rank 0 (times: {})",
      grouped(event.step), event.seconds, escape(plain_text(event.clock, 40)));
  if (event.parts.is_array()) {
    for (const Json& part : event.parts) {
      if (!part.is_object()) continue;
      fmt::format_to(out(text), ", {} {:.3f} s", escape(name_of(part)),
                     number_at(part, "seconds"));
    }
  }
  text +=
      ".</p><div class=\"scroll\"><table><tr><th>operation</th><th class=\"n\">calls</th>"
      "<th class=\"n\">seconds</th><th class=\"n\">share</th></tr>";
  for (const ProfileRow& row : profile_rows(event, kRowsOfReport)) {
    fmt::format_to(out(text),
                   "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.4f}</td><td "
                   "class=\"n\">{:.1f}%</td></tr>",
                   escape(row.name), row.calls > 0 ? grouped(row.calls) : "–",
                   row.seconds, share(event, row.seconds));
  }
  text += "</table></div>";
  const std::vector<ProductRow> products = product_rows(event);
  if (!products.empty()) {
    text +=
        "<div class=\"scroll\"><table><tr><th>product, rows × summed × columns</th>"
        "<th class=\"n\">calls</th><th class=\"n\">seconds</th><th class=\"n\">share</th>"
        "<th class=\"n\">TFLOP/s</th></tr>";
    for (const ProductRow& row : products) {
      fmt::format_to(out(text),
                     "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.4f}</td>"
                     "<td class=\"n\">{:.1f}%</td><td class=\"n\">{:.3g}</td></tr>",
                     escape(row.title()), grouped(row.calls), row.seconds,
                     share(event, row.seconds), row.rate() * 1e-12);
    }
    text += "</table></div>";
  }
  return text + "</section>";
}

}  // namespace longhaul::monitor
