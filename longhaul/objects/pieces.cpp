#include "longhaul/objects/pieces.h"

#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/system/signals.h"

namespace longhaul::objects {
namespace {

/// How long to wait before a fetch that has failed ahead of its use is tried again.
constexpr auto kTryAgain = std::chrono::seconds(2);

}  // namespace

/// The state of the fetches that run ahead of their use. A Pieces and the thread of a
/// fetch share it.
struct Pieces::Ahead {
  std::mutex mutex;
  bool busy = false;
  std::vector<std::string> done;
  std::chrono::steady_clock::time_point not_before;
};

Pieces::Pieces(std::shared_ptr<LocalCopies> copies, Address prefix,
               const std::vector<ObjectInfo>& objects,
               const std::function<bool(const std::string&)>& comes_later,
               std::string outline)
    : copies_(std::move(copies)),
      prefix_(std::move(prefix)),
      outline_(std::move(outline)),
      ahead_(std::make_shared<Ahead>()) {
  const size_t skip = prefix_.key.empty() ? 0 : prefix_.key.size() + 1;
  std::vector<ObjectInfo> first;
  for (const ObjectInfo& object : objects) {
    const std::string name = object.address.key.substr(skip);
    objects_.emplace(name, object);
    if (!comes_later(name)) first.push_back(object);
  }
  first_ = copies_->hold(prefix_, std::move(first), /*waits=*/false);
}

std::optional<uint64_t> Pieces::size(const std::string& name) const {
  const auto found = objects_.find(name);
  if (found == objects_.end()) return std::nullopt;
  return found->second.size;
}

std::vector<ObjectInfo> Pieces::named(const std::vector<std::string>& names) const {
  std::vector<ObjectInfo> objects;
  for (const std::string& name : names) {
    const auto found = objects_.find(name);
    if (found == objects_.end()) {
      fail_input("objects", "{}: was not there when the run began", name_of(name));
    }
    objects.push_back(found->second);
  }
  return objects;
}

std::shared_ptr<const fs::path> Pieces::hold(
    const std::vector<std::string>& names) const {
  return copies_->hold(prefix_, named(names), /*waits=*/true);
}

void Pieces::fetch_ahead(const std::vector<std::string>& names) const {
  std::vector<ObjectInfo> objects = named(names);
  const std::lock_guard lock(ahead_->mutex);
  if (ahead_->busy || ahead_->done == names ||
      std::chrono::steady_clock::now() < ahead_->not_before) {
    return;
  }
  try {
    // Nobody waits for this thread. A process that ends leaves the fetch unfinished. The
    // copy is not held, so that it is the first to be deleted when other ranks need room.
    std::thread([ahead = ahead_, copies = copies_, prefix = prefix_, names,
                 objects = std::move(objects)] {
      system::leave_signals_to_main_thread();
      const auto failure =
          Failure::of([&] { (void)copies->hold(prefix, objects, /*waits=*/false); });
      const std::lock_guard done(ahead->mutex);
      ahead->busy = false;
      if (!failure) ahead->done = names;
      if (failure) ahead->not_before = std::chrono::steady_clock::now() + kTryAgain;
    }).detach();
    ahead_->busy = true;
  } catch (const std::system_error&) {
    // If no thread can be started, the reader fetches the objects itself.
  }
}

}  // namespace longhaul::objects
