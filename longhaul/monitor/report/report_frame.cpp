#include "longhaul/monitor/report/report_frame.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhaul/monitor/html.h"
#include "longhaul/monitor/report/report_script.h"
#include "longhaul/monitor/report/report_style.h"

namespace longhaul::monitor {

std::string report_frame(const std::string& title, const std::string& body,
                         const std::string& program, double now) {
  // The policy below lets the page load nothing and run nothing but the script, even if
  // the page has a mistake.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><meta "
      "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src '{}'\"/><title>{} – longhaul report</title><style>{}"
      "</style></head>\n<body><main>{}<footer>Made by {} on {} UTC. Dashed lines mark "
      "restarts, red ones bad steps and rollbacks; bands reach from the lowest to the "
      "highest value.</footer></main><script>{}</script></body></html>\n",
      kReportScriptHash, escape(title), kReportStyle, body, escape(program), utc(now),
      kReportScript);
}

std::string plots_section(const std::string& cards) {
  // The tools are hidden until the script shows them.
  return "<h2>Training</h2><div class=\"tools\" hidden><label>Smoothing <input "
         "type=\"range\" min=\"0\" max=\"1\" value=\"0\" autocomplete=\"off\"/></label> "
         "<output>off</output><button type=\"button\" disabled>Whole run</button>"
         "<span>Drag along a plot to see its steps closer.</span></div>"
         "<div class=\"plots\">" +
         cards + "</div>";
}

std::string utc(double seconds) {
  const auto time = static_cast<std::time_t>(std::clamp(seconds, 0.0, 1e11));
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(time));
}

std::string figure_or_dash(double value, const char* form) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(form), value) : "–";
}

}  // namespace longhaul::monitor
