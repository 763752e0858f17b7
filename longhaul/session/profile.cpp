#include "longhaul/session/profile.h"

#include <ATen/record_function.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"

namespace longhaul::session {
namespace {

using Clock = parallel::Trace::Clock;
using Lane = parallel::Trace::Lane;

/// The most rows of operations in the event; further operations share one row. A step has
/// some 30 kinds of operation, and each kind needs a row of its own: the optimizer of a
/// small model comes late in the list.
constexpr size_t kMostOfEvent = 40;
constexpr size_t kMostProducts = 10;

/// Operations that multiply two matrices, and the index of the first matrix among their
/// inputs.
constexpr std::array<std::pair<std::string_view, size_t>, 5> kProducts = {{
    {"longhaul::product", 0},
    {"longhaul::weight_gradient", 0},
    {"aten::mm", 0},
    {"aten::bmm", 0},
    {"aten::addmm", 1},
}};

/// A product [..., rows, summed] times [..., summed, columns]; all 0: no product.
struct ProductSize {
  int64_t count = 0;  ///< number of matrices
  int64_t rows = 0, summed = 0, columns = 0;

  auto operator<=>(const ProductSize&) const = default;
  double flops() const {
    return 2.0 * static_cast<double>(count * rows) * static_cast<double>(summed) *
           static_cast<double>(columns);
  }
  std::string text() const {
    return fmt::format("{}{} x {} x {}", count > 1 ? fmt::format("{} of ", count) : "",
                       rows, summed, columns);
  }
};

ProductSize product_size(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  for (const auto& [product, first] : kProducts) {
    if (name != product) continue;
    const c10::ArrayRef<const c10::IValue> inputs = function.inputs();
    if (inputs.size() < first + 2 || !inputs[first].isTensor()) return {};
    const at::Tensor& a = inputs[first].toTensor();
    const at::Tensor& b = inputs[first + 1].toTensor();
    if (a.dim() < 2 || b.dim() < 2) return {};
    return {a.dim() > 2 ? a.size(0) : 1, a.size(-2), a.size(-1), b.size(-1)};
  }
  return {};
}

/// Returns "LinearNode" for "longhaul::ops::(anonymous namespace)::LinearNode"; the names
/// of LibTorch's operations stay.
std::string plain_name(std::string_view name) {
  if (name.ends_with("Node>")) name.remove_suffix(1);
  if (!name.ends_with("Node")) return std::string(name);
  const size_t last = name.rfind(':');
  return std::string(last == std::string_view::npos ? name : name.substr(last + 1));
}

double milliseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

}  // namespace

class Profile::Recording {
 public:
  Recording(at::Device device, int rank)
      : device_(device), trace_(rank), begun_(Clock::now()) {
    if (!device_.is_cpu()) origin_ = stamp();
    // LibTorch passes no argument to its observers, so they need this pointer.
    LH_ASSERT(current == nullptr, "two profiles at once");
    current = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&Recording::on_begin, &Recording::on_end)
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                     at::RecordScope::USER_SCOPE}));
  }
  ~Recording() {
    at::removeCallback(handle_);
    current = nullptr;
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  parallel::Trace& trace() { return trace_; }

  void part(std::string_view name) {
    const Clock::time_point now = Clock::now();
    if (!part_.empty()) {
      trace_.record(part_, Lane::Phase, part_begun_, now);
      parts_.emplace_back(part_, milliseconds(part_begun_, now));
    }
    part_ = name;
    part_begun_ = now;
  }

  void block(const std::string& name, bool begins) {
    if (begins) {
      blocks_.push_back(Clock::now());
    } else if (!blocks_.empty()) {
      trace_.record(name, Lane::Block, blocks_.back(), Clock::now());
      blocks_.pop_back();
    }
  }

  /// Records a wait that ends now, as part of the operation in which it happened.
  void waited(const run::OperationName& name, Clock::time_point since) {
    const Clock::time_point now = Clock::now();
    std::string text = fmt::format("wait: {} on '{}'", name.verb, name.group);
    trace_.record(text, Lane::Ranks, since, now);
    Span span{std::move(text), since, now};
    span.parent = open_.empty() ? kNone : open_.back();
    span.host_only = true;
    spans_.push_back(std::move(span));
  }

  run::ProfileEvent finish() {
    part({});
    const double total = milliseconds(begun_, Clock::now());
    if (!device_.is_cpu()) {
      const c10::Event last = stamp();
      last.synchronize();
    }
    tell_operations();
    run::ProfileEvent event;
    event.seconds = total / 1e3;
    event.clock = device_.is_cpu() ? "host" : device_.str();
    event.parts = Json::array();
    for (const auto& [name, ms] : parts_) {
      event.parts.push_back({{"name", name}, {"seconds", ms / 1e3}});
    }
    event.operations = rows();
    event.products = products();
    return event;
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  struct Span {
    std::string name;
    Clock::time_point begin, end;
    size_t parent = kNone;  ///< index of the operation that called this one
    bool host_only = false;
    ProductSize product = {};
    std::optional<c10::Event> first = {}, last = {};  ///< marks in the device's stream
    /// Milliseconds by the device's clock, or by the host's clock on a CPU.
    double ms = 0.0;
  };

  static std::unique_ptr<at::ObserverContext> on_begin(
      const at::RecordFunction& function) {
    if (current != nullptr) current->open(function);
    return nullptr;
  }
  static void on_end(const at::RecordFunction&, at::ObserverContext*) {
    if (current != nullptr) current->close();
  }

  c10::Event stamp() const {
    c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    return event;
  }

  void open(const at::RecordFunction& function) {
    Span span{plain_name(function.name()), {}, {}};
    span.product = product_size(function);
    span.parent = open_.empty() ? kNone : open_.back();
    open_.push_back(spans_.size());
    if (!device_.is_cpu()) span.first = stamp();
    span.begin = Clock::now();
    spans_.push_back(std::move(span));
  }

  void close() {
    if (open_.empty()) return;  // the pass began before the recording
    Span& span = spans_[open_.back()];
    span.end = Clock::now();
    if (!device_.is_cpu()) span.last = stamp();
    open_.pop_back();
  }

  /// Puts the operations into the timeline, and computes their times.
  void tell_operations() {
    for (Span& span : spans_) {
      span.ms = milliseconds(span.begin, span.end);
      if (span.host_only) continue;
      trace_.record(span.name, Lane::Operation, span.begin, span.end);
      if (!span.first || !span.last) continue;
      span.ms = span.first->elapsedTime(*span.last);
      trace_.record_us(span.name, Lane::Device, 1e3 * origin_->elapsedTime(*span.first),
                       1e3 * span.ms);
    }
  }

  struct Row {
    int64_t calls = 0;
    double ms = 0.0;
  };

  template <typename Key>
  static std::vector<std::pair<Key, Row>> longest_first(const std::map<Key, Row>& rows) {
    std::vector<std::pair<Key, Row>> sorted(rows.begin(), rows.end());
    std::ranges::stable_sort(
        sorted, [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
    return sorted;
  }

  Json rows() const {
    std::map<std::string, Row> by_name;
    for (const Span& span : spans_) {
      Row& row = by_name[span.name];
      ++row.calls;
      row.ms += span.ms;
      // A wait of the host takes none of the device's time.
      if (span.parent == kNone || (span.host_only && !device_.is_cpu())) continue;
      by_name[spans_[span.parent].name].ms -= span.ms;
    }
    auto sorted = longest_first(by_name);
    // The event has few rows, since programs that read the events of a long run can keep
    // only a little of each event.
    if (sorted.size() > kMostOfEvent) {
      Row rest;
      for (size_t i = kMostOfEvent; i < sorted.size(); ++i) {
        rest.calls += sorted[i].second.calls;
        rest.ms += sorted[i].second.ms;
      }
      const size_t left_out = sorted.size() - kMostOfEvent;
      sorted.resize(kMostOfEvent);
      sorted.emplace_back(fmt::format("{} rarer ones", left_out), rest);
    }
    Json rows = Json::array();
    for (const auto& [name, row] : sorted) {
      rows.push_back({{"name", name}, {"calls", row.calls}, {"seconds", row.ms / 1e3}});
    }
    return rows;
  }

  Json products() const {
    std::map<std::pair<std::string, ProductSize>, Row> by_size;
    for (const Span& span : spans_) {
      if (span.product == ProductSize{}) continue;
      Row& row = by_size[{span.name, span.product}];
      ++row.calls;
      row.ms += span.ms;
    }
    auto sorted = longest_first(by_size);
    sorted.resize(std::min(sorted.size(), kMostProducts));
    Json rows = Json::array();
    for (const auto& [key, row] : sorted) {
      const auto& [name, size] = key;
      rows.push_back({{"name", name},
                      {"shape", size.text()},
                      {"calls", row.calls},
                      {"seconds", row.ms / 1e3},
                      {"flops", size.flops() * static_cast<double>(row.calls)}});
    }
    return rows;
  }

  static thread_local Recording* current;

  at::Device device_;
  parallel::Trace trace_;
  Clock::time_point begun_;
  std::optional<c10::Event> origin_;
  at::CallbackHandle handle_;
  std::string part_;
  Clock::time_point part_begun_;
  std::vector<std::pair<std::string, double>> parts_;
  std::vector<Clock::time_point> blocks_;
  std::vector<Span> spans_;
  std::vector<size_t> open_;  ///< indices of operations that have not ended
};

thread_local Profile::Recording* Profile::Recording::current = nullptr;

Profile::Profile(at::Device device, int rank, comm::Ledger& ledger)
    : device_(device), rank_(rank), ledger_(ledger) {}

Profile::~Profile() {
  if (recording_) ledger_.set_wait_observer({});
}

void Profile::begin() {
  recording_ = std::make_unique<Recording>(device_, rank_);
  ledger_.set_wait_observer(
      [this](const run::OperationName& name, comm::Ledger::Clock::time_point since) {
        recording_->waited(name, since);
      });
}

void Profile::part(std::string_view name) {
  if (recording_) recording_->part(name);
}

void Profile::block(const std::string& name, bool begins) {
  if (recording_) recording_->block(name, begins);
}

parallel::Trace* Profile::trace() { return recording_ ? &recording_->trace() : nullptr; }

Profile::Result Profile::end() {
  ledger_.set_wait_observer({});
  const std::unique_ptr<Recording> recording = std::move(recording_);
  Result result;
  result.event = recording->finish();
  result.timeline = recording->trace().json();
  return result;
}

}  // namespace longhaul::session
