#include "longhaul/checkpoint/mirror/mirror_store.h"

#include "longhaul/base/error.h"

namespace longhaul::checkpoint {
namespace {

/// A mirror whose requests an ObjectStore sends.
class ObjectMirror : public MirrorStore {
 public:
  ObjectMirror(objects::Address address, objects::ObjectStore::Priority priority)
      : address_(std::move(address)), store_(priority) {}

  std::string place() const override { return address_.text(); }

  std::vector<Entry> list(const std::string& below) override {
    const objects::Address prefix = below.empty() ? address_ : address_ / below;
    const size_t outside = address_.key.empty() ? 0 : address_.key.size() + 1;
    std::vector<Entry> entries;
    for (const objects::ObjectInfo& object : store_.list(prefix, /*versions=*/false)) {
      entries.push_back({object.address.key.substr(outside), object.size});
    }
    return entries;
  }

  std::string put(const fs::path& from, const std::string& name) override {
    return store_.put(from, address_ / name);
  }

  std::string fetch(const std::string& name, const fs::path& to) override {
    const auto object = store_.look(address_ / name);
    if (!object) {
      fail_input("mirror", "{}: there is no such object any more",
                 (address_ / name).text());
    }
    return store_.fetch(*object, to);
  }

  void put_text(const std::string& text, const std::string& name) override {
    store_.put_text(text, address_ / name);
  }

  std::optional<std::string> read_text(const std::string& name) override {
    return store_.read_text(address_ / name);
  }

  void remove(const std::string& name) override { store_.remove(address_ / name); }
  void remove_all(const std::string& below) override {
    store_.remove_all(address_ / below);
  }
  void stop() override { store_.stop(); }
  int64_t retries() const override { return store_.counts().retries; }

 private:
  objects::Address address_;
  objects::ObjectStore store_;
};

}  // namespace

std::unique_ptr<MirrorStore> open_mirror(const objects::Address& address,
                                         objects::ObjectStore::Priority priority) {
  return std::make_unique<ObjectMirror>(address, priority);
}

}  // namespace longhaul::checkpoint
