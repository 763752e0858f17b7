#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace longhaul::tokenizer {

/// Lends sessions, each to one call at a time, so that the cache of one call serves the
/// next. The pool keeps as many sessions as calls ran at once. Any number of threads may
/// use a pool.
template <typename Session>
class SessionPool {
 public:
  struct GiveBack {
    SessionPool* pool;
    void operator()(Session* session) const {
      const std::lock_guard lock(pool->mutex_);
      pool->free_.emplace_back(session);
    }
  };
  /// A lent session, which the destructor gives back.
  using Lease = std::unique_ptr<Session, GiveBack>;

  /// Lends a free session, else a new one of this model.
  template <typename Model>
  Lease lend(const Model& model) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        Lease session(free_.back().release(), GiveBack{this});
        free_.pop_back();
        return session;
      }
      free_.reserve(++made_);  // giving back never allocates
    }
    return {std::make_unique<Session>(model).release(), GiveBack{this}};
  }

 private:
  std::mutex mutex_;
  size_t made_ = 0;
  std::vector<std::unique_ptr<Session>> free_;
};

}  // namespace longhaul::tokenizer
