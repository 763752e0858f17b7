#include "apps/pages/pages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "apps/pages/markdown.h"
#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::apps {
namespace {

constexpr const char* kArea = "docs";
/// The page in the directory of pages that lists all of them.
constexpr const char* kListOfPages = "README.md";

/// Returns "data" for "docs/data.md", "./Data" and "data"; a page in another folder keeps
/// its whole name.
std::string bare_name(const std::string& page) {
  std::string name = lower_case(page);
  const size_t start = name.rfind('/') + 1;
  const std::string folder = name.substr(0, start);
  if (folder == "./" || folder == "../" || folder.ends_with("docs/"))
    name.erase(0, start);
  if (name.ends_with(".md")) name.resize(name.size() - 3);
  return name;
}

/// Finds every page by its bare name: the pages in the directory `docs` and in its
/// parent.
std::map<std::string, fs::path> pages_in(const fs::path& docs) {
  std::map<std::string, fs::path> pages;
  for (const fs::path& dir : {docs, docs.parent_path()}) {
    for (const auto& entry : fs::directory_iterator(dir)) {
      if (entry.path().extension() != ".md" || entry.path() == docs / kListOfPages)
        continue;
      pages.emplace(bare_name(entry.path().filename().string()), entry.path());
    }
  }
  return pages;
}

std::string hint(const std::string& name, const std::vector<std::string>& names,
                 const std::string& prefix) {
  const auto near = nearest_name(name, names);
  return near ? fmt::format("did you mean `longhaul docs {}{}`?", prefix, *near)
              : fmt::format("there are {}", fmt::join(names, ", "));
}

/// Returns up to five names of pages that hold a word, those with the most first.
std::vector<std::string> pages_with(const std::map<std::string, fs::path>& pages,
                                    const std::string& word) {
  constexpr size_t kMostPages = 5;
  std::vector<std::pair<size_t, std::string>> counts;
  for (const auto& [name, path] : pages) {
    const std::string text = lower_case(read_text(path));
    size_t count = 0;
    for (size_t at = text.find(word); at != std::string::npos && !word.empty();
         at = text.find(word, at + word.size())) {
      ++count;
    }
    if (count > 0) counts.emplace_back(count, name);
  }
  std::ranges::stable_sort(counts, std::greater{},
                           &std::pair<size_t, std::string>::first);
  std::vector<std::string> names;
  for (const auto& [count, name] : counts) {
    if (names.size() < kMostPages) names.push_back(name);
  }
  return names;
}

fs::path find_page(const fs::path& docs, const std::string& name) {
  const std::map<std::string, fs::path> pages = pages_in(docs);
  const auto found = pages.find(bare_name(name));
  if (found != pages.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, path] : pages) names.push_back(known);
  const std::string word = lower_case(name);
  const bool near = nearest_name(bare_name(name), names).has_value();
  const std::vector<std::string> said =
      near ? std::vector<std::string>{} : pages_with(pages, word);
  fail_input(kArea, "there is no page \"{}\"; {}", name,
             said.empty()
                 ? hint(bare_name(name), names, "")
                 : fmt::format("these pages have the word: {}", fmt::join(said, ", ")));
}

std::string find_section(const std::string& page, const std::string& markdown,
                         const std::string& anchor) {
  const std::vector<Heading> headings = headings_of(markdown);
  const auto found = std::ranges::find(headings, lower_case(anchor), &Heading::anchor);
  if (found != headings.end()) {
    return section_of(markdown, headings, found - headings.begin());
  }
  std::vector<std::string> anchors;
  for (const Heading& heading : headings) anchors.push_back(heading.anchor);
  fail_input(kArea, "the page \"{}\" has no section \"{}\"; {}", page, anchor,
             hint(lower_case(anchor), anchors, page + "#"));
}

}  // namespace

std::string read_page(const fs::path& docs, const std::string& wanted) {
  if (wanted.empty() || wanted == fs::path("docs") / kListOfPages) {
    return read_text(docs / kListOfPages);
  }
  const size_t mark = wanted.find('#');
  const std::string name = wanted.substr(0, mark);
  const fs::path path = find_page(docs, name);
  std::string markdown = read_text(path);
  if (mark == std::string::npos || mark + 1 == wanted.size()) return markdown;
  return find_section(bare_name(name), markdown, wanted.substr(mark + 1));
}

}  // namespace longhaul::apps
