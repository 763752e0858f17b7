#include "longhaul/objects/access.h"

#include <map>
#include <mutex>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/objects/local_copy.h"

namespace longhaul::objects {

struct Access::State : std::enable_shared_from_this<State> {
  const std::shared_ptr<ObjectStore> store = std::make_shared<ObjectStore>();
  const std::shared_ptr<CopyPaths> paths = std::make_shared<CopyPaths>();
  std::mutex mutex;  ///< guards what follows
  CopyPlace place;
  std::shared_ptr<LocalCopies> copies;
  std::map<std::string, std::shared_ptr<const Pieces>> pieces;  ///< by address

  /// Passes a line to the `tell` of the last keep_copies().
  void tell_as_asked(const std::string& line) {
    std::function<void(const std::string&)> tell;
    {
      const std::lock_guard lock(mutex);
      tell = place.tell;
    }
    if (tell) tell(line);
  }

  std::shared_ptr<LocalCopies> shared_copies() {
    const std::lock_guard lock(mutex);
    if (!copies) {
      // A fetch that runs ahead of its use may outlive this object.
      const auto tell = [state = weak_from_this()](const std::string& line) {
        if (const auto living = state.lock()) living->tell_as_asked(line);
      };
      copies = std::make_shared<LocalCopies>(
          store, place.dir.empty() ? default_cache() : place.dir, place.most_bytes, tell,
          paths);
    }
    if (place.prove_anew) copies->prove_anew();
    return copies;
  }
};

Access::Access() : state_(std::make_shared<State>()) {}

const std::shared_ptr<ObjectStore>& Access::store() const { return state_->store; }

const std::shared_ptr<CopyPaths>& Access::paths() const { return state_->paths; }

std::string Access::with_addresses(std::string text) const {
  return state_->paths->with_addresses(std::move(text));
}

void Access::keep_copies(CopyPlace place) const {
  const std::lock_guard lock(state_->mutex);
  state_->place = std::move(place);
}

fs::path Access::readable(const fs::path& path) const {
  if (!is_address(path)) return path;
  const Address address = parse_pattern(path);
  if (has_wildcard(address.key)) {
    fail_input("objects",
               "{}: patterns of addresses name inputs of `longhaul data build` and files "
               "of ready ids alone; name one object or the prefix of all that is meant",
               address.text());
  }
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->pieces.find(address.text());
    if (found != state_->pieces.end()) return found->second->dir();
  }
  return state_->shared_copies()->get(address);
}

void Access::read_in_pieces(const fs::path& address,
                            const std::vector<ObjectInfo>& objects,
                            const std::function<bool(const std::string&)>& comes_later,
                            std::string outline) const {
  const Address prefix = parse_address(address);
  auto pieces = std::make_shared<const Pieces>(state_->shared_copies(), prefix, objects,
                                               comes_later, std::move(outline));
  const std::lock_guard lock(state_->mutex);
  state_->pieces[prefix.text()] = std::move(pieces);
}

std::shared_ptr<const Pieces> Access::pieces_at(const fs::path& dir) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [address, pieces] : state_->pieces) {
    if (pieces->dir() == dir) return pieces;
  }
  return nullptr;
}

}  // namespace longhaul::objects
