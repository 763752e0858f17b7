#include "longhaul/monitor/report_frame.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhaul/monitor/html.h"
#include "longhaul/monitor/report_style.h"

namespace longhaul::monitor {

std::string report_frame(const std::string& title, const std::string& body,
                         const std::string& program, double now) {
  // Even a mistake of ours could load or run nothing.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><meta "
      "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\"/><title>{} – longhaul report</title><style>{}</style></head>\n"
      "<body><main>{}<footer>Made by {} on {} UTC. Dashed lines mark restarts, red ones "
      "bad steps and rollbacks; bands reach from the lowest to the highest value."
      "</footer></main></body></html>\n",
      escape(title), kReportStyle, body, escape(program), utc(now));
}

std::string utc(double seconds) {
  const auto time = static_cast<std::time_t>(std::clamp(seconds, 0.0, 1e11));
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(time));
}

std::string figure_or_dash(double value, const char* form) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(form), value) : "–";
}

}  // namespace longhaul::monitor
