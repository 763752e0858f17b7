#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace longhaul::tokenizer {

/// Lends sessions, each to one call at a time, so that the cache of one call serves the
/// next. The pool keeps as many sessions as calls ran at once. Any number of threads may
/// use a pool.
template <typename Session>
class SessionPool {
 public:
  /// A lent session, which the destructor gives back.
  class Lease {
   public:
    Lease(SessionPool& pool, std::unique_ptr<Session> session)
        : pool_(pool), session_(std::move(session)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { pool_.give_back(std::move(session_)); }
    Session& operator*() { return *session_; }
    Session* operator->() { return session_.get(); }

   private:
    SessionPool& pool_;
    std::unique_ptr<Session> session_;
  };

  /// Lends a free session, else a new one of this model.
  template <typename Model>
  Lease lend(const Model& model) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Session> session = std::move(free_.back());
        free_.pop_back();
        return {*this, std::move(session)};
      }
      free_.reserve(++made_);  // giving back never allocates
    }
    return {*this, std::make_unique<Session>(model)};
  }

 private:
  void give_back(std::unique_ptr<Session> session) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(session));
  }

  std::mutex mutex_;
  size_t made_ = 0;
  std::vector<std::unique_ptr<Session>> free_;
};

}  // namespace longhaul::tokenizer
