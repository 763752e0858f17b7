#include "apps/pages/shared_files.h"

#include <fmt/format.h>

#include <string_view>
#include <system_error>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"

namespace longhaul::apps {

fs::path shared_files(const std::string& name, const std::string& area) {
  const fs::path binary = this_program();
  fs::path installed = binary.parent_path().parent_path() / "share" / "longhaul" / name;
  if (fs::is_directory(installed)) return installed;
  for (fs::path dir = binary.parent_path(); dir.has_relative_path();
       dir = dir.parent_path()) {
    if (fs::is_directory(dir / name) && fs::is_directory(dir / "longhaul" / "config")) {
      return dir / name;
    }
  }
  fail_input(area,
             "no {} found: neither {} nor a source tree around "
             "{}; install with `make install` or the wheel",
             name, installed.string(), binary.string());
}

std::string own_model(const std::string& text) {
  constexpr std::string_view kOwnModel = "\nconfig = \"recipes/";
  const size_t at = text.find(kOwnModel);
  if (at == std::string::npos) return "";
  const size_t begin = at + kOwnModel.size();
  return text.substr(begin, text.find('"', begin) - begin);
}

std::string with_own_model(const std::string& text, const std::string& model,
                           const fs::path& path) {
  const std::string old = fmt::format("\"recipes/{}\"", model);
  std::string changed = text;
  // A JSON string is a TOML string too.
  changed.replace(changed.find(old), old.size(), json_text(Json(path.string())));
  return changed;
}

std::string with_own_model_here(const std::string& text, const std::string& area) {
  const std::string model = own_model(text);
  std::error_code error;
  if (model.empty() || fs::exists(fs::path("recipes") / model, error)) return text;
  const fs::path own = shared_files("recipes", area) / model;
  return fs::exists(own, error) ? with_own_model(text, model, own) : text;
}

}  // namespace longhaul::apps
