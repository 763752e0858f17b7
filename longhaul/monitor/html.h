#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longhaul::monitor {

/// Returns a text for elements and quoted attributes of HTML and XML. A character that
/// HTML or XML may not hold becomes '?'.
std::string escape(std::string_view text);

/// A cell of a table. The text is HTML already.
struct HtmlCell {
  std::string text;
  const char* style = "";  ///< CSS class; empty: none
};
/// Returns a row whose cells are `element` elements ("td" or "th").
std::string html_row(const char* element, const std::vector<HtmlCell>& cells);
/// Returns rows as a table, in a box that scrolls if the page is narrow.
std::string html_table(const std::string& rows);

}  // namespace longhaul::monitor
