#include "longhaul/train/rank_zero.h"

#include <optional>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/json.h"

namespace longhaul::train {
namespace {

Json to_json(const Error& error) {
  // what() repeats the area in front; the constructor adds it again.
  const std::string message =
      std::string(error.what()).substr(error.area().size() + std::string("[] ").size());
  return {{"kind", static_cast<int>(error.kind())},
          {"area", error.area()},
          {"message", message}};
}

/// What a rank tells the others: its result, or its error.
Json attempt(const std::function<std::string()>& work) {
  try {
    return {{"value", work()}};
  } catch (const Error& error) {
    return to_json(error);
  } catch (const fs::filesystem_error& problem) {
    return to_json(to_error(problem));
  }
}

std::string value_or_throw(const Json& report) {
  if (report.contains("value")) return report["value"].get<std::string>();
  throw Error(static_cast<ErrorKind>(report["kind"].get<int>()),
              report["area"].get<std::string>(), report["message"].get<std::string>());
}

}  // namespace

std::string on_rank_zero(comm::Communicator& world,
                         const std::function<std::string()>& work) {
  std::string report;
  if (world.rank() == 0) report = attempt(work).dump();
  return value_or_throw(Json::parse(world.broadcast_string(report, 0)));
}

void on_all_ranks(comm::Communicator& world, const std::function<void()>& work) {
  const Json mine = attempt([&] {
    work();
    return std::string();
  });
  for (const std::string& report : world.gather_strings(mine.dump())) {
    value_or_throw(Json::parse(report));
  }
}

}  // namespace longhaul::train
