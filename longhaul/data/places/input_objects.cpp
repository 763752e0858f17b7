#include "longhaul/data/places/input_objects.h"

#include <utility>

namespace longhaul::data {
namespace {

class StoreObjects final : public InputObjects {
 public:
  explicit StoreObjects(std::shared_ptr<objects::ObjectStore> store)
      : store_(std::move(store)) {}
  std::optional<objects::ObjectInfo> look(const objects::Address& address) override {
    return store_->look(address);
  }
  std::vector<objects::ObjectInfo> list(const objects::Address& prefix) override {
    return store_->list(prefix, /*versions=*/false);
  }
  void read(const objects::ObjectInfo& object, uint64_t offset,
            std::span<std::byte> to) override {
    store_->read(object, offset, to);
  }
  std::shared_ptr<const std::byte[]> read_shared(const objects::ObjectInfo& object,
                                                 uint64_t offset,
                                                 uint64_t count) override {
    return store_->read_shared(object, offset, count);
  }
  void prove_unchanged(const objects::ObjectInfo& object) override {
    store_->prove_unchanged(object);
  }
  bool came_right(const objects::ObjectInfo& object, const std::string& digest) override {
    return store_->came_right(object, digest);
  }
  std::optional<std::string> read_text(const objects::Address& address) override {
    return store_->read_text(address);
  }

 private:
  std::shared_ptr<objects::ObjectStore> store_;
};

}  // namespace

std::shared_ptr<InputObjects> input_objects(std::shared_ptr<objects::ObjectStore> store) {
  return std::make_shared<StoreObjects>(std::move(store));
}

}  // namespace longhaul::data
