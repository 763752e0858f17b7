#include "longhaul/comm/agree.h"

#include <new>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"

namespace longhaul::comm {
namespace {

Failure failure_of(const Error& error) {
  // what() repeats the area in front; the constructor adds it again.
  return {error.kind(), error.area(),
          std::string(error.what()).substr(error.area().size() + 3)};
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const Failure& failure) {
  return {{"kind", static_cast<int>(failure.kind)},
          {"area", failure.area},
          {"message", failure.message}};
}

Failure from_json(const Json& json) {
  return {static_cast<ErrorKind>(json.at("kind").get<int>()),
          json.at("area").get<std::string>(), json.at("message").get<std::string>()};
}

}  // namespace

std::optional<Failure> Failure::of(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    return failure_of(error);
  } catch (const fs::filesystem_error& error) {
    return failure_of(to_error(error));
  } catch (const std::bad_alloc&) {
    return Failure{ErrorKind::Internal, "memory", "this rank has no memory left"};
  } catch (const std::exception& error) {
    return Failure{ErrorKind::Internal, "unexpected", error.what()};
  }
}

std::string Failure::to_text(const std::optional<Failure>& failure) {
  return failure ? dump(to_json(*failure)) : std::string();
}

std::optional<Failure> Failure::from_text(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return from_json(Json::parse(text));
}

void Failure::raise() const {
  if (kind == ErrorKind::Config) throw ConfigError(area, message);
  if (kind == ErrorKind::Input) throw InputError(area, message);
  if (kind == ErrorKind::Temporary) throw TemporaryError(area, message);
  throw Error(kind, area, message);
}

std::string on_rank_zero(Communicator& group, const std::function<std::string()>& work) {
  Json report;
  if (group.rank() == 0) {
    std::string value;
    const auto failure = Failure::of([&] { value = work(); });
    report = failure ? Json{{"failure", to_json(*failure)}} : Json{{"value", value}};
  }
  const Json agreed = Json::parse(group.broadcast_string(dump(report), 0));
  if (agreed.contains("failure")) from_json(agreed["failure"]).raise();
  return agreed.at("value").get<std::string>();
}

void on_all_ranks(Communicator& group, const std::function<void()>& work) {
  const std::string mine = Failure::to_text(Failure::of(work));
  for (const std::string& text : group.gather_strings(mine)) {
    if (const auto failure = Failure::from_text(text)) failure->raise();
  }
}

}  // namespace longhaul::comm
