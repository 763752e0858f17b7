#include "longhaul/monitor/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/monitor/plain_text.h"

namespace longhaul::monitor {
namespace {

struct Entity {
  char character;
  const char* text;
};
constexpr Entity kEntities[] = {
    {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};

}  // namespace

std::string escape(std::string_view text) {
  // plain_text leaves no control character and only valid UTF-8.
  std::string out;
  for (const char c : plain_text(text, text.size())) {
    const auto* const entity = std::ranges::find(kEntities, c, &Entity::character);
    out += entity == std::end(kEntities) ? std::string(1, c) : entity->text;
  }
  return out;
}

std::string html_row(const char* element, const std::vector<HtmlCell>& cells) {
  std::string row = "<tr>";
  for (const auto& [text, style] : cells) {
    row += *style == '\0'
               ? fmt::format("<{0}>{1}</{0}>", element, text)
               : fmt::format("<{0} class=\"{2}\">{1}</{0}>", element, text, style);
  }
  return row + "</tr>";
}

std::string html_table(const std::string& rows) {
  return "<div class=\"scroll\"><table>" + rows + "</table></div>";
}

}  // namespace longhaul::monitor
