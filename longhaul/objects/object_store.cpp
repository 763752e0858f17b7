#include "longhaul/objects/object_store.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/base/refused.h"
#include "longhaul/objects/etag.h"
#include "longhaul/objects/shared_places.h"
#include "longhaul/system/messages.h"
#include "longhaul/system/signals.h"

namespace longhaul::objects {
namespace {

constexpr double kUsualPatience = 120.0;
/// The most times that a small object is read whose bytes do not fit its ETag.
constexpr int kMostReads = 5;

/// Returns the error that a request throws once stop() was called.
TemporaryError stopped_error() {
  const int signal = system::raised_signal().number;
  if (signal == 0) return {"objects", "no more requests are sent to the store"};
  return {"objects", fmt::format("ended by {} while it waited for the store; start again",
                                 system::signal_name(signal))};
}

/// Starts the program longhaul-objects with `socket` as its kServiceSocket and `memory`
/// as its kServiceMemory, for a request about an address.
pid_t start_service(int socket, int memory, const Address& address,
                    ObjectStore::Priority priority) {
  const fs::path program = fs::path(this_program()).parent_path() / "longhaul-objects";
  if (!is_seen(program)) {
    fail_input(
        "objects",
        "{}: {} is not there, so no address of an object store can be opened. This "
        "build has no S3 part of Arrow, which the wheel of pyarrow has. Install the "
        "whole program, or copy the files here by other means (docs/offline.md)",
        address.text(), program.string());
  }
  // Checks LONGHAUL_OBJECTS_PATIENCE in this process, since nobody reads an error of the
  // other process.
  static_cast<void>(patience_seconds());
  std::vector<std::string> arguments;
  if (priority == ObjectStore::Priority::Low) arguments.emplace_back(kLowPriority);
  return system::start_own_process("objects", program, {socket, memory}, arguments);
}

Json address_fields(const Address& address) {
  return {{"bucket", address.bucket}, {"key", address.key}};
}

ObjectInfo info_of(const Json& answer, const Address& address) {
  return {address, answer.at("size").get<uint64_t>(),
          answer.at("version").get<std::string>()};
}

}  // namespace

double patience_seconds() {
  const char* const text = std::getenv("LONGHAUL_OBJECTS_PATIENCE");
  if (text == nullptr || *text == '\0') return kUsualPatience;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end == '\0' && std::isfinite(seconds) && seconds >= 0) return seconds;
  fail_input("objects",
             "LONGHAUL_OBJECTS_PATIENCE is '{}', and has to be a number of seconds, as "
             "120, without a unit",
             text);
}

/// One process longhaul-objects, and the requests that wait for its answers.
struct ObjectStore::State {
  struct Waiting {
    std::promise<Json> answer;
    std::span<std::byte> data;
  };
  /// A process longhaul-objects that runs, and the socket to it.
  struct Service {
    Service(const Address& address, Priority priority) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        throw refused("objects", "pair of sockets", errno);
      }
      socket = Descriptor(ends[0]);
      const Descriptor of_child(ends[1]);
      child = start_service(of_child.get(), memory->descriptor(), address, priority);
    }
    ~Service() {
      // In a forked child, a shutdown of the socket would end it for the parent, too.
      if (::getpid() != maker) {
        if (receiver.joinable()) receiver.detach();
        return;
      }
      ::shutdown(socket.get(), SHUT_RDWR);
      if (receiver.joinable()) receiver.join();
      socket.reset();
      // The process might still be fetching bytes for which nobody waits.
      if (stopped) ::kill(child, SIGKILL);
      system::await_own_process(child);
    }

    /// A process that has lost its socket may still write to this memory, so each process
    /// has memory of its own.
    std::shared_ptr<SharedPlaces> memory = std::make_shared<SharedPlaces>();
    const pid_t maker = ::getpid();
    Descriptor socket;
    pid_t child = -1;
    std::atomic<bool> gone = false;
    std::atomic<bool> stopped = false;
    std::mutex sending;
    std::mutex mutex;  ///< guards what follows
    std::map<uint64_t, Waiting> waiting;
    uint64_t next = 1;
    ObjectCounts counts;
    std::thread receiver;
  };

  Priority priority = Priority::Normal;
  std::mutex mutex;
  std::shared_ptr<Service> service;
  ObjectCounts earlier;  ///< of processes that have ended
  bool stopped = false;

  /// The caller must hold `mutex`.
  void require_going() const {
    if (stopped) throw stopped_error();
  }

  /// Returns the process, which is started if there is none, or if it has ended.
  std::shared_ptr<Service> living(const Address& address) {
    const std::lock_guard lock(mutex);
    require_going();
    if (service && !service->gone) return service;
    if (service) {
      const ObjectCounts last = [&] {
        const std::lock_guard own(service->mutex);
        return service->counts;
      }();
      earlier += last;
      service.reset();
    }
    // The service counts once its thread runs. Without the thread nobody would get an
    // answer.
    auto started = std::make_shared<Service>(address, priority);
    started->receiver = std::thread([&one = *started] { receive(one); });
    service = std::move(started);
    return service;
  }

  /// Gives each answer to the request that waits for it, until the process ends.
  static void receive(Service& one) {
    system::leave_signals_to_main_thread();
    // If there is no memory for an answer, all threads that wait get the error that they
    // get when the process has ended.
    static_cast<void>(Failure::of([&] { receive_answers(one); }));
    one.gone = true;
    const std::lock_guard lock(one.mutex);
    for (auto& [number, waiting] : one.waiting) {
      waiting.answer.set_exception(std::make_exception_ptr(end_of(one)));
    }
    one.waiting.clear();
  }

  /// Returns the error for the requests to a process that has ended.
  static TemporaryError end_of(const Service& one) {
    if (one.stopped) return stopped_error();
    return {"objects",
            "the process longhaul-objects has ended while it worked on a request; start "
            "again"};
  }

  static void receive_answers(Service& one) {
    Head head;
    std::string text;
    while (system::receive_all(one.socket.get(), &head, sizeof(head)) &&
           head.text_bytes <= kMostTextBytes && head.data_bytes <= kMostDataBytes) {
      text.resize(head.text_bytes);
      if (!system::receive_all(one.socket.get(), text.data(), text.size())) break;
      Waiting waiting;
      {
        const std::lock_guard lock(one.mutex);
        one.counts = head.counts;
        const auto found = one.waiting.find(head.number);
        if (found == one.waiting.end()) break;
        waiting = std::move(found->second);
        one.waiting.erase(found);
      }
      try {
        if (head.data_bytes != 0 && head.data_bytes != waiting.data.size()) {
          throw Error(ErrorKind::Internal, "objects", "an answer of another length");
        }
        if (!system::receive_all(one.socket.get(), waiting.data.data(),
                                 head.data_bytes)) {
          throw end_of(one);
        }
        waiting.answer.set_value(Json::parse(open_reply(std::move(text))));
      } catch (...) {
        waiting.answer.set_exception(std::current_exception());
      }
      text.clear();
    }
  }

  Json ask(const char* what, const Address& address, Json request,
           std::span<std::byte> data = {}) {
    return ask(living(address), what, address, std::move(request), data);
  }

  static Json ask(const std::shared_ptr<Service>& one, const char* what,
                  const Address& address, Json request, std::span<std::byte> data = {}) {
    request["what"] = what;
    request.update(address_fields(address));
    const std::string text = json_text(request);
    std::future<Json> answer;
    uint64_t number = 0;
    {
      const std::lock_guard lock(one->mutex);
      number = one->next++;
      Waiting& waiting = one->waiting[number];
      waiting.data = data;
      answer = waiting.answer.get_future();
    }
    const Head head{number, text.size(), 0};
    bool sent = false;
    {
      const std::lock_guard lock(one->sending);
      sent = system::send_all(one->socket.get(), &head, sizeof(head)) &&
             system::send_all(one->socket.get(), text.data(), text.size());
    }
    if (!sent || one->gone) {
      const std::lock_guard lock(one->mutex);
      if (one->waiting.erase(number) > 0) throw end_of(*one);
    }
    return answer.get();
  }
};

ObjectStore::ObjectStore(Priority priority) : state_(std::make_unique<State>()) {
  state_->priority = priority;
}
ObjectStore::~ObjectStore() = default;

std::optional<ObjectInfo> ObjectStore::look(const Address& address) {
  const Json answer = state_->ask("look", address, Json::object());
  if (answer.is_null()) return std::nullopt;
  return info_of(answer, address);
}

std::vector<ObjectInfo> ObjectStore::list(const Address& prefix, bool versions) {
  const Json answer = state_->ask("list", prefix, {{"versions", versions}});
  std::vector<ObjectInfo> objects;
  for (const Json& one : answer) {
    objects.push_back(
        info_of(one, Address{prefix.bucket, one.at("key").get<std::string>()}));
  }
  std::ranges::sort(objects, {}, [](const ObjectInfo& one) { return one.address.key; });
  return objects;
}

void ObjectStore::read(const ObjectInfo& object, uint64_t offset,
                       std::span<std::byte> to) {
  while (!to.empty()) {
    const std::span<std::byte> part =
        to.first(std::min<size_t>(to.size(), kMostDataBytes));
    state_->ask("read", object.address,
                {{"version", object.version},
                 {"size", object.size},
                 {"offset", offset},
                 {"bytes", part.size()}},
                part);
    offset += part.size();
    to = to.subspan(part.size());
  }
}

std::shared_ptr<const std::byte[]> ObjectStore::read_shared(const ObjectInfo& object,
                                                            uint64_t offset,
                                                            uint64_t count) {
  LH_CHECK(count <= kPlaceBytes, "objects", "{} bytes by one request", count);
  const std::shared_ptr<State::Service> service = state_->living(object.address);
  const uint64_t place = service->memory->take();
  // The holder gives the place back, even if the place cannot be mapped.
  const std::shared_ptr<const void> holder(
      static_cast<const void*>(nullptr),
      [memory = service->memory, place](const void*) { memory->give_back(place); });
  const std::shared_ptr<const std::byte[]> bytes(holder, service->memory->at(place));
  State::ask(service, "read", object.address,
             {{"version", object.version},
              {"size", object.size},
              {"offset", offset},
              {"bytes", count},
              {"place", place}});
  return bytes;
}

void ObjectStore::prove_unchanged(const ObjectInfo& object) {
  const std::optional<ObjectInfo> now = look(object.address);
  if (now && now->version == object.version && now->size == object.size) return;
  fail_input(
      "objects",
      "{}: the object was {} while it was read; start again when nobody changes it",
      object.address.text(), now ? "replaced" : "removed");
}

bool ObjectStore::came_right(const ObjectInfo& object, const std::string& digest) {
  return state_
      ->ask("came_right", object.address,
            {{"version", object.version}, {"size", object.size}, {"digest", digest}})
      .get<bool>();
}

std::string ObjectStore::fetch(const ObjectInfo& object, const fs::path& to) {
  return state_
      ->ask("fetch", object.address,
            {{"version", object.version},
             {"size", object.size},
             {"path", fs::absolute(to).string()}})
      .at("hash");
}

std::string ObjectStore::put(const fs::path& from, const Address& to) {
  return state_->ask("put", to, {{"path", fs::absolute(from).string()}}).at("hash");
}

void ObjectStore::put_text(const std::string& text, const Address& to) {
  state_->ask("put_text", to, {{"text", text}});
}

std::optional<std::string> ObjectStore::read_text(const Address& address,
                                                  uint64_t limit) {
  const std::optional<ObjectInfo> object = look(address);
  if (!object) return std::nullopt;
  if (object->size > limit) {
    fail_input("objects", "{}: has {} bytes, where at most {} are expected",
               address.text(), object->size, limit);
  }
  std::string text(object->size, '\0');
  for (int reads = 0; reads < kMostReads; ++reads) {
    read(*object, 0, std::as_writable_bytes(std::span(text)));
    prove_unchanged(*object);
    EtagProof proof(object->version, object->size);
    proof.update(std::as_bytes(std::span(text)));
    if (proof.fits() || came_right(*object, proof.digest())) return text;
  }
  fail_temporary(
      "objects",
      "{}: the store gave other bytes each time that it was read; start again later",
      address.text());
}

void ObjectStore::remove(const Address& address) {
  state_->ask("remove", address, Json::object());
}

void ObjectStore::stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  if (!state_->service) return;
  // The receiving thread finds the end of the socket, and tells all threads that wait.
  state_->service->stopped = true;
  ::shutdown(state_->service->socket.get(), SHUT_RDWR);
}

void ObjectStore::require_going() const {
  const std::lock_guard lock(state_->mutex);
  state_->require_going();
}

void ObjectStore::remove_all(const Address& prefix) {
  LH_CHECK(!prefix.key.empty(), "objects", "a bucket is not removed");
  state_->ask("remove_all", prefix, Json::object());
}

ObjectCounts ObjectStore::counts() const {
  const std::lock_guard lock(state_->mutex);
  ObjectCounts counts = state_->earlier;
  if (state_->service) {
    const std::lock_guard own(state_->service->mutex);
    counts += state_->service->counts;
  }
  return counts;
}

}  // namespace longhaul::objects
