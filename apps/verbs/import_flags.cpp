#include "apps/verbs/import_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "apps/new_file.h"
#include "apps/pages/shared_files.h"
#include "apps/program.h"
#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/system/terminal.h"
#include "longhaul/translate/translate.h"

namespace longhaul::apps {

void import_flags(const FlagsCall& call) {
  if (!call.out.empty()) refuse_existing(call.out, "file");
  const translate::Translation made = translate::translate(
      call.flags, call.ranks > 0 ? std::optional(call.ranks) : std::nullopt);
  const std::string text = with_own_model_here(made.text, "flags");
  const bool writes = !call.out.empty() && made.refused.empty();
  if (writes) {
    write_new(call.out, text, "file");
  } else {
    fmt::print("{}", text);
  }
  for (const std::string& line : made.unknown) {
    say_warning(fmt::format("unknown setting, left out: {}", line));
  }
  for (const std::string& line : made.warnings) say_warning(line);
  if (!made.to_fill.empty()) {
    say_warning(fmt::format("to be filled in: {}", fmt::join(made.to_fill, ", ")));
  }
  fmt::print(stderr,
             "{}{} carried over, {} without a key here, {} unknown, {} to be filled in\n",
             writes ? system::printable(call.out) + ": " : "",
             counted(made.carried, "setting"), made.without_key, made.unknown.size(),
             made.to_fill.size());
  if (made.refused.empty()) return;
  fail_config("config", "`train` would refuse this file: {}{}", made.refused,
              call.out.empty()
                  ? std::string()
                  : fmt::format("; the file was printed, and {} was not written; "
                                "correct the settings and import them again",
                                call.out));
}

}  // namespace longhaul::apps
