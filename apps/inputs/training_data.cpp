#include "apps/inputs/training_data.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "apps/inputs/data_places.h"
#include "apps/program.h"
#include "longhaul/base/error.h"
#include "longhaul/data/bert/example_store.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/store/build/build_store.h"
#include "longhaul/data/store/store.h"

namespace longhaul::apps {
namespace {

/// An argument, the paths that it names, and place_of() of each path.
struct Named {
  std::string argument;
  std::vector<fs::path> paths;
  std::set<fs::path> places;
};

std::vector<Named> expanded(const std::vector<std::string>& arguments) {
  std::vector<Named> all;
  for (const std::string& argument : arguments) {
    Named& named = all.emplace_back();
    named.argument = argument;
    named.paths = data::expand_paths({argument});
    for (const fs::path& path : named.paths) named.places.insert(place_of(path));
  }
  return all;
}

/// Returns, for each store that was held out of a store in `all`, its place_of() and the
/// path of the store that it was held out of.
std::map<fs::path, fs::path> held_out_places(const std::vector<Named>& all) {
  std::map<fs::path, fs::path> held_out;
  for (const Named& named : all) {
    for (const fs::path& path : named.paths) {
      const fs::path beside = held_out_of(path);
      if (!beside.empty()) held_out.emplace(place_of(beside), path);
    }
  }
  return held_out;
}

[[noreturn]] void refuse_held_out(const std::string& argument, const fs::path& path,
                                  const fs::path& of) {
  fail_input("data",
             "{}: matches {}, which was held out of {}; name only the data to train on",
             argument, path.string(), of.string());
}

}  // namespace

fs::path held_out_of(const fs::path& store) {
  for (const fs::path& path : {store, place_of(store)}) {
    fs::path beside = data::holdout_path(path);
    if (data::is_token_store(beside) || data::is_example_store(beside)) return beside;
  }
  return {};
}

std::vector<std::string> training_data(const std::vector<std::string>& arguments) {
  const std::vector<Named> all = expanded(arguments);
  const std::map<fs::path, fs::path> held_out = held_out_places(all);
  std::vector<std::string> training;
  std::set<fs::path> seen;
  for (const Named& named : all) {
    std::vector<std::pair<fs::path, fs::path>> for_validation;
    size_t repeated = 0;
    for (const fs::path& path : named.paths) {
      const fs::path place = place_of(path);
      if (const auto of = held_out.find(place); of != held_out.end()) {
        for_validation.emplace_back(path, of->second);
      }
      if (seen.contains(place)) ++repeated;
    }
    if (for_validation.size() == named.paths.size()) {
      say_warning(
          fmt::format("{} is held out of another argument: it is for validation alone",
                      named.argument));
    } else if (!for_validation.empty()) {
      refuse_held_out(named.argument, for_validation[0].first, for_validation[0].second);
    } else if (repeated == named.paths.size()) {
      say_warning(named.argument + " is named twice and read once");
    } else if (repeated > 0) {
      fail_input("data",
                 "{} matches files that another argument names, too, and that would be "
                 "read twice; name each file once",
                 named.argument);
    } else {
      training.push_back(named.argument);
      seen.insert(named.places.begin(), named.places.end());
    }
  }
  return training;
}

}  // namespace longhaul::apps
