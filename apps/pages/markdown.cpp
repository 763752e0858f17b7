#include "apps/pages/markdown.h"

#include <cmark-gfm-core-extensions.h>
#include <cmark-gfm.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "apps/pages/styled_text.h"
#include "apps/pages/text_table.h"
#include "longhaul/base/text.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

/// Longer lines of prose are hard to read, however wide the window is.
constexpr size_t kProseColumns = 100;
constexpr size_t kNarrowestText = 20;

using Lines = std::vector<std::string>;
using Document = std::unique_ptr<cmark_node, decltype(&cmark_node_free)>;

Document parse(const std::string& markdown) {
  cmark_gfm_core_extensions_ensure_registered();
  const std::unique_ptr<cmark_parser, decltype(&cmark_parser_free)> parser(
      cmark_parser_new(CMARK_OPT_VALIDATE_UTF8), cmark_parser_free);
  cmark_parser_attach_syntax_extension(parser.get(),
                                       cmark_find_syntax_extension("table"));
  cmark_parser_feed(parser.get(), markdown.data(), markdown.size());
  return {cmark_parser_finish(parser.get()), cmark_node_free};
}

std::string_view kind_of(cmark_node* node) { return cmark_node_get_type_string(node); }

std::vector<cmark_node*> children_of(cmark_node* node) {
  std::vector<cmark_node*> children;
  for (cmark_node* child = cmark_node_first_child(node); child != nullptr;
       child = cmark_node_next(child)) {
    children.push_back(child);
  }
  return children;
}

std::string literal_of(cmark_node* node) {
  const char* text = cmark_node_get_literal(node);
  return text == nullptr ? "" : text;
}

/// Returns all text inside the node, without marks.
std::string text_of(cmark_node* node) {
  const std::string_view kind = kind_of(node);
  if (kind == "text" || kind == "code") return literal_of(node);
  if (kind == "softbreak" || kind == "linebreak") return " ";
  std::string text;
  for (cmark_node* child : children_of(node)) text += text_of(child);
  return text;
}

/// Returns the name that GitHub gives to a heading.
std::string anchor_of(const std::string& text) {
  std::string anchor;
  for (const char c : lower_case(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ') anchor += '-';
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || byte >= 0x80) anchor += c;
  }
  return anchor;
}

/// Returns whether the words of a link already say where it leads.
bool says_target(const std::string& link_words, std::string target) {
  const std::string words = lower_case(link_words);
  const size_t scheme = target.find("://");
  if (scheme != std::string::npos) {
    return words == lower_case(target) || words == lower_case(target.substr(scheme + 3));
  }
  if (target.ends_with(".md")) target.resize(target.size() - 3);
  target = lower_case(target);
  const std::string name = target.substr(target.rfind('/') + 1);
  return words == target || words == name || words == name + ".md" ||
         words == "docs/" + name + ".md";
}

class Drawing {
 public:
  explicit Drawing(bool colour) : colour_(colour) {}

  /// Draws the blocks below a node, with an empty line between them unless `tight`.
  Lines blocks(cmark_node* parent, size_t columns, bool tight = false) const {
    Lines lines;
    for (cmark_node* child : children_of(parent)) {
      const Lines block = block_lines(child, std::max(columns, kNarrowestText));
      if (block.empty()) continue;
      if (!lines.empty() && !tight) lines.emplace_back();
      lines.insert(lines.end(), block.begin(), block.end());
    }
    return lines;
  }

 private:
  Lines block_lines(cmark_node* node, size_t columns) const {
    const std::string_view kind = kind_of(node);
    if (kind == "heading") return heading(node, columns);
    if (kind == "paragraph") return prose(inlines(node, kPlain), columns);
    if (kind == "code_block") return code(node);
    if (kind == "list") return list(node, columns);
    if (kind == "block_quote") return indented(blocks(node, columns - 2), "| ", "| ");
    if (kind == "table") return table(node, columns);
    if (kind == "thematic_break")
      return {std::string(std::min<size_t>(columns, 40), '-')};
    if (kind == "html_block") return {};
    return blocks(node, columns);
  }

  Lines prose(const Pieces& pieces, size_t columns) const {
    Lines lines;
    for (const DrawnLine& line :
         wrapped(pieces, std::min(columns, kProseColumns), colour_)) {
      lines.push_back(line.text);
    }
    return lines;
  }

  Lines heading(cmark_node* node, size_t columns) const {
    const int level = cmark_node_get_heading_level(node);
    const unsigned style = kBold | (level == 1 ? kUnderlined : kPlain);
    Pieces pieces = inlines(node, style);
    if (!colour_) pieces.insert(pieces.begin(), {std::string(level, '#') + " "});
    return prose(pieces, columns);
  }

  Lines code(cmark_node* node) const {
    Lines lines;
    const std::string text = literal_of(node);
    for (const std::string_view shown : lines_of(text)) {
      const std::string line = system::printable(shown);
      lines.push_back(line.empty() ? "" : "    " + drawn({line, kCode}, colour_));
    }
    return lines;
  }

  static Lines indented(Lines lines, const std::string& first, const std::string& rest) {
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string& indent = i == 0 ? first : rest;
      lines[i] = lines[i].empty() && indent == rest && rest.front() == ' '
                     ? ""
                     : indent + lines[i];
    }
    return lines;
  }

  Lines list(cmark_node* node, size_t columns) const {
    const bool numbered = cmark_node_get_list_type(node) == CMARK_ORDERED_LIST;
    const bool tight = cmark_node_get_list_tight(node) != 0;
    int number = cmark_node_get_list_start(node);
    Lines lines;
    for (cmark_node* item : children_of(node)) {
      const std::string mark = numbered ? fmt::format("{}. ", number++) : "- ";
      if (!lines.empty() && !tight) lines.emplace_back();
      const Lines inner = indented(blocks(item, columns - mark.size(), tight), mark,
                                   std::string(mark.size(), ' '));
      lines.insert(lines.end(), inner.begin(), inner.end());
    }
    return lines;
  }

  Lines table(cmark_node* node, size_t columns) const {
    TextTable table;
    const uint16_t count = cmark_gfm_extensions_get_table_columns(node);
    const uint8_t* alignments = cmark_gfm_extensions_get_table_alignments(node);
    for (uint16_t i = 0; i < count; ++i) table.right.push_back(alignments[i] == 'r');
    for (cmark_node* row : children_of(node)) {
      const unsigned style = table.rows.empty() ? kBold : kPlain;
      std::vector<Pieces>& cells = table.rows.emplace_back();
      for (cmark_node* cell : children_of(row)) cells.push_back(inlines(cell, style));
      cells.resize(count);
    }
    return table_lines(table, columns, colour_);
  }

  Pieces inlines(cmark_node* parent, unsigned style) const {
    Pieces pieces;
    for (cmark_node* child : children_of(parent)) {
      const Pieces more = inline_pieces(child, style);
      pieces.insert(pieces.end(), more.begin(), more.end());
    }
    return pieces;
  }

  Pieces inline_pieces(cmark_node* node, unsigned style) const {
    const std::string_view kind = kind_of(node);
    if (kind == "text") return {{system::printable(literal_of(node)), style}};
    if (kind == "softbreak") return {{" ", style}};
    if (kind == "linebreak") return {{"\n", style}};
    if (kind == "code") {
      const std::string text = system::printable(literal_of(node));
      return {{colour_ ? text : "`" + text + "`", style | kCode}};
    }
    if (kind == "strong") return inlines(node, style | kBold);
    if (kind == "emph") return inlines(node, style | kUnderlined);
    if (kind == "image") return {{fmt::format("[picture: {}]", text_of(node)), kFaint}};
    if (kind == "link") return link(node, style);
    if (kind == "html_inline") return {};
    return inlines(node, style);
  }

  /// Draws the words of a link, and behind them where it leads if that is another page
  /// whose name the words do not say.
  Pieces link(cmark_node* node, unsigned style) const {
    Pieces pieces = inlines(node, style);
    const std::string target = system::printable(cmark_node_get_url(node));
    if (!target.starts_with("#") && !says_target(text_of(node), target)) {
      pieces.push_back({fmt::format(" ({})", target), style | kFaint});
    }
    return pieces;
  }

  bool colour_;
};

}  // namespace

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<Heading> headings_of(const std::string& markdown) {
  const Document document = parse(markdown);
  std::vector<Heading> headings;
  std::map<std::string, int> times;
  for (cmark_node* node : children_of(document.get())) {
    if (kind_of(node) != "heading") continue;
    const std::string text = text_of(node);
    std::string anchor = anchor_of(text);
    const int before = times[anchor]++;
    if (before > 0) anchor += fmt::format("-{}", before);
    headings.push_back({cmark_node_get_heading_level(node), text, anchor,
                        static_cast<size_t>(cmark_node_get_start_line(node))});
  }
  return headings;
}

std::string section_of(const std::string& markdown, const std::vector<Heading>& headings,
                       size_t which) {
  const auto offset = [&](size_t line) {
    size_t at = 0;
    for (size_t i = 1; i < line; ++i) at = markdown.find('\n', at) + 1;
    return at;
  };
  const size_t begin = offset(headings[which].line);
  for (size_t i = which + 1; i < headings.size(); ++i) {
    if (headings[i].level > headings[which].level) continue;
    return markdown.substr(begin, offset(headings[i].line) - begin);
  }
  return markdown.substr(begin);
}

std::string terminal_text(const std::string& markdown, size_t columns, bool colour) {
  const Document document = parse(markdown);
  std::string text;
  for (const std::string& line : Drawing(colour).blocks(document.get(), columns)) {
    text += line + "\n";
  }
  return text;
}

}  // namespace longhaul::apps
