#include "longhaul/objects/readable.h"

#include <map>
#include <mutex>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/objects/local_copy.h"

namespace longhaul::objects {
namespace {

struct Shared {
  std::mutex mutex;
  std::shared_ptr<ObjectStore> store;
  CopyPlace place;
  std::shared_ptr<LocalCopies> copies;
  std::map<std::string, std::shared_ptr<const Pieces>> pieces;  ///< by address
};

/// Returns what this process shares. It is never destroyed: a child that ends must not
/// end the store's process, which ends by itself when this process is gone.
Shared& shared() {
  static Shared& one = *new Shared;
  return one;
}

/// Passes a line to whoever was named last.
void tell_as_asked(const std::string& line) {
  std::function<void(const std::string&)> tell;
  {
    const std::lock_guard lock(shared().mutex);
    tell = shared().place.tell;
  }
  if (tell) tell(line);
}

std::shared_ptr<ObjectStore> store_of(Shared& one) {
  if (!one.store) one.store = std::make_shared<ObjectStore>();
  return one.store;
}

std::shared_ptr<LocalCopies> shared_copies() {
  Shared& one = shared();
  const std::lock_guard lock(one.mutex);
  if (!one.copies) {
    const fs::path dir = one.place.dir.empty() ? default_cache() : one.place.dir;
    one.copies = std::make_shared<LocalCopies>(store_of(one), dir, one.place.most_bytes,
                                               tell_as_asked);
  }
  if (one.place.prove_anew) one.copies->prove_anew();
  return one.copies;
}

}  // namespace

std::shared_ptr<ObjectStore> shared_store() {
  Shared& one = shared();
  const std::lock_guard lock(one.mutex);
  return store_of(one);
}

void keep_copies(CopyPlace place) {
  Shared& one = shared();
  const std::lock_guard lock(one.mutex);
  one.place = std::move(place);
}

Address readable_address(const fs::path& path) { return parse_address(path); }

fs::path readable(const fs::path& path) {
  if (!is_address(path)) return path;
  const Address address = parse_pattern(path);
  if (address.key.find_first_of("*?[") != std::string::npos) {
    throw InputError("objects",
                     address.text() +
                         ": patterns of addresses name inputs of `longhaul data "
                         "build` and files of ready ids alone; name one object or "
                         "the prefix of all that is meant");
  }
  {
    const std::lock_guard lock(shared().mutex);
    const auto found = shared().pieces.find(address.text());
    if (found != shared().pieces.end()) return found->second->dir();
  }
  return shared_copies()->get(address);
}

void read_in_pieces(const fs::path& address, const std::vector<ObjectInfo>& objects,
                    const std::function<bool(const std::string&)>& comes_later,
                    std::string outline) {
  const Address prefix = readable_address(address);
  auto pieces = std::make_shared<const Pieces>(shared_copies(), prefix, objects,
                                               comes_later, std::move(outline));
  const std::lock_guard lock(shared().mutex);
  shared().pieces[prefix.text()] = std::move(pieces);
}

std::shared_ptr<const Pieces> pieces_at(const fs::path& dir) {
  const std::lock_guard lock(shared().mutex);
  for (const auto& [address, pieces] : shared().pieces) {
    if (pieces->dir() == dir) return pieces;
  }
  return nullptr;
}

}  // namespace longhaul::objects
