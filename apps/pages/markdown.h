#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace longhaul::apps {

/// Returns the text with ASCII's capital letters made small.
std::string lower_case(std::string text);

/// A heading of a page.
struct Heading {
  int level = 1;
  std::string text;
  /// How a link names it: "what-an-area-means".
  std::string anchor;
  /// The first line of the heading in the page, counted from 1.
  size_t line = 1;
};

/// Returns the headings of a Markdown text in their order.
std::vector<Heading> headings_of(const std::string& markdown);

/// Returns a heading and what stands below it, up to the next heading of its level or a
/// higher one. `which` is an index into headings_of(markdown).
std::string section_of(const std::string& markdown, const std::vector<Heading>& headings,
                       size_t which);

/// Draws Markdown with GitHub's tables as text for a terminal of `columns` columns. With
/// `colour`, headings, code and emphasis are drawn by a terminal's codes; without, the
/// text has no control characters, and headings and code keep their marks.
std::string terminal_text(const std::string& markdown, size_t columns, bool colour);

}  // namespace longhaul::apps
