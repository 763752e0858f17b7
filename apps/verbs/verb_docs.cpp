#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "apps/pages/markdown.h"
#include "apps/pages/pages.h"
#include "apps/pages/shared_files.h"
#include "apps/verbs.h"
#include "longhaul/base/file.h"
#include "longhaul/base/text.h"
#include "longhaul/monitor/terminal_writer.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

/// Returns how many columns a line may have: those of the window, else those that COLUMNS
/// names, else 80.
size_t page_columns() {
  if (::isatty(STDOUT_FILENO) == 1) return monitor::Terminal::window().width;
  const char* named = std::getenv("COLUMNS");
  const long columns = named == nullptr ? 0 : std::strtol(named, nullptr, 10);
  return columns < 20 || columns > 1000 ? 80 : static_cast<size_t>(columns);
}

/// Returns the words of $PAGER, without a shell; `less -R` if it is not set.
std::vector<std::string> pager_words() {
  const char* named = std::getenv("PAGER");
  return split_words(named == nullptr ? "less -R" : named);
}

/// Replaces this process by the pager, with the text as its standard input. Returns only
/// if the pager cannot be started.
void become_pager(const std::string& text) {
  std::vector<std::string> words = pager_words();
  if (words.empty()) return;
  const Descriptor file(::memfd_create("page", MFD_CLOEXEC));
  if (!file.is_open()) return;
  const bool written =
      write_descriptor(file.get(), text) && ::lseek(file.get(), 0, SEEK_SET) == 0;
  const Descriptor input(::dup(STDIN_FILENO));
  if (written && ::dup2(file.get(), STDIN_FILENO) == STDIN_FILENO) {
    // Git sets the same options for less: colours pass, and a page that fits the window
    // is printed and stays. The pages are UTF-8 in any locale.
    ::setenv("LESS", "FRX", 0);
    ::setenv("LESSCHARSET", "utf-8", 0);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    ::dup2(input.get(), STDIN_FILENO);
  }
}

void show_page(const std::string& wanted) {
  const std::string markdown = read_page(shared_files("docs", "docs"), wanted);
  const std::string text =
      terminal_text(markdown, page_columns(), system::wants_colour(STDOUT_FILENO));
  if (system::is_terminal(STDOUT_FILENO)) become_pager(text);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_docs(CLI::App& program, Outcome&) {
  CLI::App* verb = program.add_subcommand("docs", "Shows the pages of the documentation");
  const auto page = std::make_shared<std::string>();
  verb->add_option("page", *page,
                   "page to show, such as data, docs/data.md or data#tokenizers; without "
                   "it the list of pages is shown");
  verb->footer(
      "Example: longhaul docs troubleshooting\n"
      "On a terminal the page goes through $PAGER, or less; with | cat it is plain "
      "text.");
  verb->callback([page] { show_page(*page); });
}

}  // namespace longhaul::apps
