#include "longhaul/comm/agree.h"

#include <new>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/json.h"

namespace longhaul::comm {
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
std::string attempt(const std::function<std::string()>& work) {
  Json report;
  try {
    report = {{"value", work()}};
  } catch (const Error& error) {
    report = to_json(error);
  } catch (const fs::filesystem_error& problem) {
    report = to_json(to_error(problem));
  } catch (const std::bad_alloc&) {
    report =
        to_json(Error(ErrorKind::Internal, "memory", "this rank has no memory left"));
  }
  return report.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string value_or_throw(const Json& report) {
  if (report.contains("value")) return report["value"].get<std::string>();
  const auto kind = static_cast<ErrorKind>(report["kind"].get<int>());
  const auto area = report["area"].get<std::string>();
  const auto message = report["message"].get<std::string>();
  // Of the type that was thrown.
  if (kind == ErrorKind::Config) throw ConfigError(area, message);
  if (kind == ErrorKind::Input) throw InputError(area, message);
  if (kind == ErrorKind::Temporary) throw TemporaryError(area, message);
  throw Error(kind, area, message);
}

}  // namespace

std::string on_rank_zero(Communicator& group, const std::function<std::string()>& work) {
  std::string report;
  if (group.rank() == 0) report = attempt(work);
  return value_or_throw(Json::parse(group.broadcast_string(report, 0)));
}

void on_all_ranks(Communicator& group, const std::function<void()>& work) {
  const std::string mine = attempt([&] {
    work();
    return std::string();
  });
  for (const std::string& report : group.gather_strings(mine)) {
    value_or_throw(Json::parse(report));
  }
}

}  // namespace longhaul::comm
