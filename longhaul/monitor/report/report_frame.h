#pragma once

#include <string>

namespace longhaul::monitor {

/// Returns a page as one HTML file around `body`: nothing is loaded from outside, no
/// script runs but ours, and the page is dark or light as the reader's system is. `title`
/// and `program` are plain text; `program` names who made the page: "longhaul 0.1.0
/// (...)". `now` is in seconds since 1970.
std::string report_frame(const std::string& title, const std::string& body,
                         const std::string& program, double now);

/// Returns cards with plots over steps, and above them the controls of the page's script.
std::string plots_section(const std::string& cards);

/// Returns a time as "2026-11-21 08:15:30".
std::string utc(double seconds);

/// Returns a number in a form of fmt, and a dash if it is not finite.
std::string figure_or_dash(double value, const char* form);

}  // namespace longhaul::monitor
