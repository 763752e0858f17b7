#include "longhaul/objects/service/service.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/objects/protocol.h"
#include "longhaul/objects/service/s3_store.h"
#include "longhaul/objects/shared_places.h"
#include "longhaul/system/messages.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/worker_pool.h"

namespace longhaul::objects {
namespace {

/// How long requests and the end of Arrow's S3 part may still take when nobody waits for
/// an answer any more.
constexpr std::chrono::seconds kLastSeconds{3};

Json fields_of(const ObjectInfo& object) {
  return {
      {"key", object.address.key}, {"size", object.size}, {"version", object.version}};
}

ObjectInfo object_of(const Json& request, const Address& address) {
  return {address, request.at("size").get<uint64_t>(),
          request.at("version").get<std::string>()};
}

/// Does what a request asks for. `data` receives the bytes of an object that are not to
/// lie in a place of `memory`.
Json answer_of(S3Store& store, SharedPlaces& memory, const Json& request,
               std::vector<std::byte>& data) {
  const Address address{request.at("bucket").get<std::string>(),
                        request.at("key").get<std::string>()};
  const auto what = request.at("what").get<std::string>();
  if (what == "look") {
    const std::optional<ObjectInfo> object = store.look(address);
    return object ? fields_of(*object) : Json();
  }
  if (what == "list") {
    Json list = Json::array();
    for (const ObjectInfo& one : store.list(address, request.at("versions"))) {
      list.push_back(fields_of(one));
    }
    return list;
  }
  if (what == "read" && request.contains("place")) {
    const uint64_t bytes = std::min(request.at("bytes").get<uint64_t>(), kPlaceBytes);
    store.read(object_of(request, address), request.at("offset"),
               {memory.at(request.at("place")), bytes});
    return Json::object();
  }
  if (what == "read") {
    data.resize(std::min(request.at("bytes").get<uint64_t>(), kMostDataBytes));
    store.read(object_of(request, address), request.at("offset"), data);
    return Json::object();
  }
  if (what == "fetch") {
    return {{"hash", store.fetch(object_of(request, address),
                                 request.at("path").get<std::string>())}};
  }
  if (what == "came_right") {
    return store.came_right(object_of(request, address),
                            request.at("digest").get<std::string>());
  }
  if (what == "put") {
    return {{"hash", store.put(request.at("path").get<std::string>(), address)}};
  }
  if (what == "put_text") {
    store.put_text(request.at("text").get<std::string>(), address);
  } else if (what == "remove") {
    store.remove(address);
  } else if (what == "remove_all") {
    store.remove_all(address);
  } else {
    throw Error(ErrorKind::Internal, "objects", "unknown request " + what);
  }
  return Json::object();
}

}  // namespace

int serve_objects(int socket, int memory) {
  // The process ends when the socket closes. A signal that is meant for the job does not
  // end it.
  system::ignore_signals_until_exit();
  std::signal(SIGPIPE, SIG_IGN);
  S3Store store;
  SharedPlaces places(memory);
  std::mutex sending;
  {
    system::WorkerPool pool(kRequestsInFlight);
    Head head;
    std::string text;
    while (system::receive_all(socket, &head, sizeof(head)) &&
           head.text_bytes <= kMostTextBytes) {
      text.resize(head.text_bytes);
      if (!system::receive_all(socket, text.data(), text.size())) break;
      pool.add([&store, &places, &sending, socket, number = head.number, request = text] {
        std::vector<std::byte> data;
        const std::string reply = reply_of([&] {
          return json_text(answer_of(store, places, Json::parse(request), data));
        });
        if (reply.front() != kAnswerMark) data.clear();
        const Head answer{number, reply.size(), data.size(), store.counts()};
        const std::lock_guard lock(sending);
        if (system::send_all(socket, &answer, sizeof(answer)) &&
            system::send_all(socket, reply.data(), reply.size())) {
          system::send_all(socket, data.data(), data.size());
        }
      });
    }
    store.give_up();
    // Ends the process even if a request or the end of Arrow's S3 part hangs.
    std::thread([] {
      std::this_thread::sleep_for(kLastSeconds);
      ::_exit(0);
    }).detach();
  }
  return 0;
}

}  // namespace longhaul::objects
