#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "apps/new_file.h"
#include "apps/pages/shared_files.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/text.h"

namespace longhaul::apps {
namespace {

constexpr const char* kArea = "recipe";

fs::path recipes_dir() { return shared_files("recipes", kArea); }

/// Returns "demo/stage1" for recipes/demo/stage1.toml, and so on, sorted.
std::vector<std::string> recipe_names(const fs::path& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".toml") continue;
    names.push_back(fs::relative(entry.path(), dir).replace_extension().string());
  }
  std::ranges::sort(names);
  return names;
}

/// Returns the first line, if it is a comment.
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
  fmt::print("\nfrom {}; next: longhaul recipe show NAME --out run.toml\n", dir.string());
}

std::string read_recipe(const fs::path& dir, std::string name) {
  if (name.ends_with(".toml")) name.resize(name.size() - 5);
  const std::vector<std::string> names = recipe_names(dir);
  if (std::ranges::find(names, name) == names.end()) {
    const auto nearest = nearest_name(name, names);
    std::vector<std::string> alike;
    std::ranges::copy_if(names, std::back_inserter(alike), [&](const std::string& known) {
      return !name.empty() && known.find(name) != std::string::npos;
    });
    fail_input(kArea, "no recipe \"{}\" in {}; {}", name, dir.string(),
               nearest         ? fmt::format("did you mean {}?", *nearest)
               : alike.empty() ? std::string("see `longhaul recipe list`")
                               : fmt::format("there are {}", fmt::join(alike, ", ")));
  }
  return read_text(dir / (name + ".toml"));
}

/// Prints a recipe. If it names a model that comes with the program, the printed path
/// leads to that model.
void show_recipe(const std::string& name) {
  fmt::print("{}", with_own_model_here(read_recipe(recipes_dir(), name), kArea));
}

/// Refuses a path at which something exists that is not a file with this text.
void check_free(const fs::path& path, const std::string& text) {
  if (path.filename().empty() || fs::is_directory(path)) {
    fail_input(kArea, "{} is a directory; name a file, such as {}", path.string(),
               (path / "run.toml").string());
  }
  if (fs::is_regular_file(path) && read_text(path) == text) return;
  refuse_existing(path, kArea);
}

/// Writes a file unless one of this name exists. check_free() has made sure that such a
/// file has the same text.
void write_if_new(const fs::path& path, const std::string& text) {
  if (!fs::exists(path)) write_new(path, text, kArea);
}

/// Writes a recipe and, in models/ beside it, the model that it names if that one comes
/// with the program.
void write_recipe(const std::string& name, const fs::path& out) {
  const fs::path dir = recipes_dir();
  std::string text = read_recipe(dir, name);
  const std::string model = own_model(text);
  const fs::path copy = out.parent_path() / model;
  std::string config;
  if (!model.empty()) {
    config = read_text(dir / model / "config.json");
    text = with_own_model(text, model, copy);
    check_free(copy / "config.json", config);
  }
  check_free(out, text);
  if (!model.empty()) write_if_new(copy / "config.json", config);
  write_if_new(out, text);
  fmt::print("wrote {}{}; next: set data.train in it, then longhaul config {}\n",
             out.string(),
             model.empty() ? "" : fmt::format(" and its model in {}", copy.string()),
             out.string());
}

}  // namespace

void add_recipe(CLI::App& program, Outcome&) {
  CLI::App* verb = program.add_subcommand(
      "recipe", "Lists and prints the recipes: run files that come with longhaul");
  verb->require_subcommand(1);
  verb->footer("Example: longhaul recipe show llama2-7b --out run.toml");
  CLI::App* list = verb->add_subcommand(
      "list", "Lists the recipes' names and what each recipe is for");
  list->footer("Example: longhaul recipe list");
  list->callback(list_recipes);
  const auto name = std::make_shared<std::string>();
  const auto out = std::make_shared<std::string>();
  CLI::App* show = verb->add_subcommand("show", "Prints or writes one recipe");
  show->add_option("name", *name, "recipe's name, as `recipe list` prints it")
      ->required();
  show->add_option(
      "--out", *out,
      "a run file to write, with a copy of the model's config.json in models/ "
      "beside it; without it the recipe is printed");
  show->footer("Example: longhaul recipe show llama2-7b --out run.toml");
  show->callback([name, out] {
    if (out->empty()) return show_recipe(*name);
    write_recipe(*name, *out);
  });
}

}  // namespace longhaul::apps
