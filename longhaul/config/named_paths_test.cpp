#include "longhaul/config/named_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "longhaul/config/fields.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

/// Values for keys that hold paths inside of tables, one for each path that there may be.
const std::map<std::string, std::string> kTables = {
    {"run.golden", R"({ file = "/of/run.golden" })"},
    {"data.train", R"([{ path = "/of/data.train" }])"},
    {"data.validation", R"([{ name = "v", path = "/of/data.validation" }])"},
    {"validation.tasks", R"([{ name = "t", path = "/of/validation.tasks" }])"},
};

size_t times_in(const std::string& text, const std::string& part) {
  size_t times = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++times;
  return times;
}

TEST(NamedPaths, EveryKeyThatHoldsAPathIsAmongThem) {
  RunConfig defaults;
  size_t keys = 0;
  for (const config::SectionFields& section : config::sections_of(defaults)) {
    for (const config::Field& field : section.fields) {
      if (field.type.find("path") == std::string::npos) continue;
      ++keys;
      const std::string key = section.name + "." + field.key;
      std::string value = fmt::format("\"/of/{}\"", key);
      if (field.type.find('{') != std::string::npos) {
        ASSERT_TRUE(kTables.contains(key)) << key << " needs a value in kTables";
        value = kTables.at(key);
        EXPECT_EQ(times_in(value, "/of/"), times_in(field.type, "= path")) << key;
      }
      std::vector<std::string> sets = {key + "=" + value};
      if (key == "init.adapter") {
        sets.insert(sets.end(), {"adapter.kind=lora", "adapter.rank=4", "adapter.alpha=8",
                                 "init.weights=w"});
      }
      if (key == "run.compile_cache_from") sets.emplace_back("run.compile_cache_dir=c");
      const auto named = named_paths(accepted("", sets).config);
      EXPECT_EQ(std::ranges::count(named, fs::path("/of/" + key), &NamedPath::path),
                times_in(value, "/of/"))
          << key << " holds a path that named_paths() does not return";
    }
  }
  EXPECT_GE(keys, 12U);
}

}  // namespace
}  // namespace longhaul
