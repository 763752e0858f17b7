#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "apps/supervision.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/process.h"
#include "longhaul/base/text.h"

namespace longhaul::apps {
namespace {

/// The recipes beside an installed binary, or those of the source tree it was built in.
fs::path recipes_dir() {
  const fs::path binary = this_program();
  fs::path installed =
      binary.parent_path().parent_path() / "share" / "longhaul" / "recipes";
  if (fs::is_directory(installed)) return installed;
  for (fs::path dir = binary.parent_path(); dir.has_relative_path();
       dir = dir.parent_path()) {
    if (fs::is_directory(dir / "recipes") &&
        fs::is_directory(dir / "longhaul" / "config")) {
      return dir / "recipes";
    }
  }
  throw InputError("recipe", fmt::format("no recipes found: neither {} nor a source tree "
                                         "around {}; install with `make install`",
                                         installed.string(), binary.string()));
}

/// "demo/stage1" for recipes/demo/stage1.toml, sorted.
std::vector<std::string> recipe_names(const fs::path& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".toml") continue;
    names.push_back(fs::relative(entry.path(), dir).replace_extension().string());
  }
  std::ranges::sort(names);
  return names;
}

/// The first line, where it is a comment.
std::string description_of(const std::string& text) {
  if (!text.starts_with("#")) return "";
  const size_t begin = text.find_first_not_of("# ");
  const size_t end = text.find('\n');
  return begin < end ? text.substr(begin, end - begin) : "";
}

void list_recipes() {
  const fs::path dir = recipes_dir();
  const std::vector<std::string> names = recipe_names(dir);
  size_t width = 0;
  for (const std::string& name : names) width = std::max(width, name.size());
  for (const std::string& name : names) {
    fmt::print("{:<{}}  {}\n", name, width,
               description_of(read_text(dir / (name + ".toml"))));
  }
  fmt::print("\nfrom {}; next: longhaul recipe show NAME > run.toml\n", dir.string());
}

void show_recipe(std::string name) {
  if (name.ends_with(".toml")) name.resize(name.size() - 5);
  const fs::path dir = recipes_dir();
  const std::vector<std::string> names = recipe_names(dir);
  if (std::ranges::find(names, name) == names.end()) {
    const auto nearest = nearest_name(name, names);
    throw InputError("recipe",
                     fmt::format("no recipe \"{}\" in {}; {}", name, dir.string(),
                                 nearest ? fmt::format("did you mean {}?", *nearest)
                                         : std::string("see `longhaul recipe list`")));
  }
  fmt::print("{}", read_text(dir / (name + ".toml")));
}

}  // namespace

void add_recipe(CLI::App& program, Outcome&) {
  CLI::App* verb = program.add_subcommand("recipe", "The configurations that come along");
  verb->require_subcommand(1);
  verb->footer("Example: longhaul recipe show llama3-8b-cpt > run.toml");
  CLI::App* list = verb->add_subcommand("list", "Names and what each is for");
  list->footer("Example: longhaul recipe list");
  list->callback(list_recipes);
  const auto name = std::make_shared<std::string>();
  CLI::App* show = verb->add_subcommand("show", "Prints one of them");
  show->add_option("name", *name, "as `recipe list` prints it")->required();
  show->footer("Example: longhaul recipe show llama3-8b-cpt > run.toml");
  show->callback([name] { show_recipe(*name); });
}

}  // namespace longhaul::apps
