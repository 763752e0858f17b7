#include "tests/support/conformance.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"
#include "longhaul/comm/ledger.h"

namespace longhaul::comm {
namespace {

const std::vector<int64_t> kCounts{0, 1, 3, 17, 1000, 4099, 100003};

/// Returns numbers from 2^-12 to 2^12, whose sum in fp32 and fp64 depends on the order.
double value(int rank, int64_t i) {
  const auto bits = philox(11, static_cast<uint64_t>(i), static_cast<uint64_t>(rank));
  const double magnitude = std::exp2(static_cast<double>(bits[1] % 25) - 12.0);
  return (static_cast<double>(bits[0]) / 4294967296.0 - 0.5) * magnitude;
}

struct Bf16 {
  uint16_t bits;
  bool operator==(const Bf16&) const = default;
};

template <typename T>
T make(int rank, int64_t i) {
  const double x = value(rank, i);
  if constexpr (std::is_same_v<T, Bf16>) {
    return {format::float_to_bf16(static_cast<float>(x))};
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return static_cast<int64_t>(x * 1e12);
  } else {
    return static_cast<T>(x);
  }
}

template <typename T>
constexpr format::DType kType = std::is_same_v<T, Bf16>     ? format::DType::BF16
                                : std::is_same_v<T, float>  ? format::DType::F32
                                : std::is_same_v<T, double> ? format::DType::F64
                                                            : format::DType::I64;

/// Returns the reduction as the interface promises it: in the order of `ranks`.
template <typename T>
T reduced(const std::vector<int>& ranks, int64_t i, ReduceOp op) {
  using A = std::conditional_t<std::is_same_v<T, Bf16>, float, T>;
  const auto load = [&](int r) -> A {
    if constexpr (std::is_same_v<T, Bf16>) {
      return format::bf16_to_float(make<T>(r, i).bits);
    } else {
      return make<T>(r, i);
    }
  };
  A total = load(ranks[0]);
  for (size_t k = 1; k < ranks.size(); ++k) {
    const A next = load(ranks[k]);
    total = op == ReduceOp::Sum ? total + next : std::max(total, next);
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    return {format::float_to_bf16(total)};
  } else {
    return total;
  }
}

std::vector<int> in_order(int ranks) {
  std::vector<int> order;
  for (int r = 0; r < ranks; ++r) order.push_back(r);
  return order;
}

template <typename T>
bool same_bits(const T& a, const T& b) {
  // Bits are compared: -0.0 is not 0.0 here.
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
void check_all_reduce(Communicator& c) {
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max}) {
    for (const int64_t count : kCounts) {
      std::vector<T> x;
      for (int64_t i = 0; i < count; ++i) x.push_back(make<T>(c.rank(), i));
      c.all_reduce({x.data(), count, kType<T>}, op)->wait();
      int64_t wrong = 0;
      for (int64_t i = 0; i < count; ++i) {
        const T expected = reduced<T>(in_order(c.size()), i, op);
        wrong += same_bits(x[static_cast<size_t>(i)], expected) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << "of " << count << " elements, "
                          << format::dtype_name(kType<T>);
    }
  }
}

template <typename T>
void check_reduce_scatter(Communicator& c) {
  for (const bool in_place : {false, true}) {
    for (const int64_t count : kCounts) {
      std::vector<T> in;
      for (int64_t i = 0; i < count * c.size(); ++i) in.push_back(make<T>(c.rank(), i));
      std::vector<T> out(static_cast<size_t>(count));
      const int64_t begin = count * c.rank();
      T* to = in_place ? in.data() + begin : out.data();
      c.reduce_scatter({in.data(), count * c.size(), kType<T>}, {to, count, kType<T>},
                       ReduceOp::Sum)
          ->wait();
      int64_t wrong = 0;
      for (int64_t i = 0; i < count; ++i) {
        const T expected = reduced<T>(in_order(c.size()), begin + i, ReduceOp::Sum);
        wrong += same_bits(to[i], expected) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << "of " << count << (in_place ? ", in place" : "");
    }
  }
}

/// Expects that the data of these checks show the order of addition: another order gives
/// other bits.
void check_order_matters(Communicator& c) {
  if (c.size() < 3) return;  // two numbers have the same sum in either order
  std::vector<int> reversed = in_order(c.size());
  std::swap(reversed.front(), reversed.back());
  int64_t differ = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    differ += reduced<float>(in_order(c.size()), i, ReduceOp::Sum) !=
                      reduced<float>(reversed, i, ReduceOp::Sum)
                  ? 1
                  : 0;
  }
  EXPECT_GT(differ, 100);
}

void check_max_keeps_nan(Communicator& c) {
  for (int bad = 0; bad < c.size(); ++bad) {
    float x = c.rank() == bad ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
    c.all_reduce_wait({&x, 1, format::DType::F32}, ReduceOp::Max);
    EXPECT_TRUE(std::isnan(x)) << "rank " << bad;
  }
}

void check_all_gather(Communicator& c) {
  for (const bool in_place : {false, true}) {
    for (const int64_t count : kCounts) {
      std::vector<int64_t> mine;
      for (int64_t i = 0; i < count; ++i) mine.push_back(make<int64_t>(c.rank(), i));
      std::vector<int64_t> all(static_cast<size_t>(count * c.size()));
      int64_t* in = in_place ? all.data() + count * c.rank() : mine.data();
      if (in_place) std::copy(mine.begin(), mine.end(), in);
      c.all_gather({in, count, format::DType::I64},
                   {all.data(), count * c.size(), format::DType::I64})
          ->wait();
      int64_t wrong = 0;
      for (int64_t i = 0; i < count * c.size(); ++i) {
        const auto from = static_cast<int>(i / count);
        wrong += all[static_cast<size_t>(i)] == make<int64_t>(from, i % count) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << "of " << count;
    }
  }
}

void check_all_to_all(Communicator& c) {
  const int64_t n = c.size();
  for (const int64_t part : kCounts) {
    std::vector<int64_t> in(static_cast<size_t>(part * n));
    std::vector<int64_t> out(in.size(), -1);
    for (int64_t i = 0; i < part * n; ++i) {
      in[static_cast<size_t>(i)] = make<int64_t>(c.rank(), i);
    }
    c.all_to_all({in.data(), part * n, format::DType::I64},
                 {out.data(), part * n, format::DType::I64})
        ->wait();
    int64_t wrong = 0;
    for (int64_t i = 0; i < part * n; ++i) {
      const int64_t expected =
          make<int64_t>(static_cast<int>(i / part), c.rank() * part + i % part);
      wrong += out[static_cast<size_t>(i)] == expected ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0) << "of " << part;
  }
}

void check_broadcast(Communicator& c) {
  for (int root = 0; root < c.size(); ++root) {
    for (const int64_t count : kCounts) {
      std::vector<double> x(static_cast<size_t>(count), -1.0);
      if (c.rank() == root) {
        for (int64_t i = 0; i < count; ++i) x[static_cast<size_t>(i)] = value(root, i);
      }
      c.broadcast({x.data(), count, format::DType::F64}, root)->wait();
      int64_t wrong = 0;
      for (int64_t i = 0; i < count; ++i) {
        wrong += x[static_cast<size_t>(i)] == value(root, i) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << "of " << count << " from " << root;
    }
  }
}

/// Sends around a ring in both directions at once, two messages to each peer, in order.
void check_send_recv(Communicator& c) {
  if (c.size() == 1) {
    c.send_recv({})->wait();
    return;
  }
  const int next = (c.rank() + 1) % c.size();
  const int before = (c.rank() + c.size() - 1) % c.size();
  std::vector<int64_t> first(5000, c.rank());
  std::vector<int64_t> second(3, 100 + c.rank());
  std::vector<int64_t> got_first(5000);
  std::vector<int64_t> got_second(3);
  using Kind = Transfer::Kind;
  c.send_recv({{Kind::Send, next, {first.data(), 5000, format::DType::I64}},
               {Kind::Send, next, {second.data(), 3, format::DType::I64}},
               {Kind::Recv, before, {got_first.data(), 5000, format::DType::I64}},
               {Kind::Recv, before, {got_second.data(), 3, format::DType::I64}}})
      ->wait();
  EXPECT_EQ(got_first, std::vector<int64_t>(5000, before));
  EXPECT_EQ(got_second, std::vector<int64_t>(3, 100 + before));
}

/// Expects that a transfer between two ranks needs no third rank, and overtakes a
/// collective that is under way.
void check_transfer_overtakes(Communicator& c) {
  if (c.size() < 2) return;
  int64_t token = c.rank();
  using Kind = Transfer::Kind;
  WorkPtr barrier;
  if (c.rank() != 1) barrier = c.barrier();
  if (c.rank() == 0)
    c.send_recv({{Kind::Send, 1, {&token, 1, format::DType::I64}}})->wait();
  if (c.rank() == 1) {
    c.send_recv({{Kind::Recv, 0, {&token, 1, format::DType::I64}}})->wait();
    EXPECT_EQ(token, 0);
    barrier = c.barrier();
  }
  barrier->wait();
}

void check_many_under_way(Communicator& c) {
  std::vector<std::vector<float>> buffers;
  std::vector<WorkPtr> works;
  for (int k = 0; k < 20; ++k) {
    buffers.emplace_back(static_cast<size_t>(1 + k * 997), static_cast<float>(k));
  }
  for (auto& b : buffers) {
    works.push_back(c.all_reduce(
        {b.data(), static_cast<int64_t>(b.size()), format::DType::F32}, ReduceOp::Sum));
  }
  // The waits come in another order than the calls, and one wait comes twice.
  for (int k = 19; k >= 0; --k) works[static_cast<size_t>(k)]->wait();
  while (!works[3]->test()) {
  }
  works[3]->wait();
  for (size_t k = 0; k < buffers.size(); ++k) {
    const float expected = static_cast<float>(k) * static_cast<float>(c.size());
    EXPECT_EQ(buffers[k], std::vector<float>(buffers[k].size(), expected));
  }
}

void check_split(Communicator& c) {
  // The even and the odd ranks, in descending order.
  const auto half = c.split(c.rank() % 2, -c.rank(), "half");
  const int members = (c.size() - c.rank() % 2 + 1) / 2;
  EXPECT_EQ(half->size(), members);
  EXPECT_EQ(half->rank(), members - 1 - c.rank() / 2);
  EXPECT_EQ(half->name(), "half");
  int64_t sum = c.rank();
  half->all_reduce_wait({&sum, 1, format::DType::I64}, ReduceOp::Sum);
  int64_t expected = 0;
  for (int r = c.rank() % 2; r < c.size(); r += 2) expected += r;
  EXPECT_EQ(sum, expected);
}

/// Lets ranks wait for the operations of two groups in different orders.
void check_groups_progress_together(Communicator& c) {
  const auto a = c.split(0, c.rank(), "a");
  const auto b = c.split(0, c.rank(), "b");
  std::vector<float> x(50000, 1.0F);
  std::vector<float> y(50000, 2.0F);
  const auto first = a->all_reduce({x.data(), 50000, format::DType::F32}, ReduceOp::Sum);
  const auto second = b->all_reduce({y.data(), 50000, format::DType::F32}, ReduceOp::Sum);
  (c.rank() % 2 == 0 ? first : second)->wait();
  (c.rank() % 2 == 0 ? second : first)->wait();
  EXPECT_EQ(x, std::vector<float>(50000, static_cast<float>(c.size())));
  EXPECT_EQ(y, std::vector<float>(50000, 2.0F * static_cast<float>(c.size())));
}

void check_helpers(Communicator& c) {
  for (int who = 0; who < c.size(); ++who) EXPECT_TRUE(c.any(c.rank() == who));
  EXPECT_FALSE(c.any(false));
  const auto text = [](int r) {
    return r % 3 == 1 ? std::string()
                      : std::string(static_cast<size_t>(r + 1), 'a') + '\0';
  };
  const std::vector<std::string> all = c.gather_strings(text(c.rank()));
  ASSERT_EQ(all.size(), static_cast<size_t>(c.size()));
  for (int r = 0; r < c.size(); ++r) EXPECT_EQ(all[static_cast<size_t>(r)], text(r));
  const int root = c.size() - 1;
  EXPECT_EQ(c.broadcast_string(c.rank() == root ? "from the last" : "mine", root),
            "from the last");
}

/// Returns the count of what one call of a verb has sent.
template <typename Call>
int64_t sent_by(Communicator& c, Verb verb, const Call& call) {
  const VerbCount before = c.counts()[verb];
  const VerbCount group_before = c.ledger().counts_of(c.name())[verb];
  call();
  const VerbCount after = c.counts()[verb];
  EXPECT_EQ(after.calls, before.calls + 1) << verb_name(verb);
  const VerbCount group_after = c.ledger().counts_of(c.name())[verb];
  EXPECT_EQ(group_after.bytes - group_before.bytes, after.bytes - before.bytes);
  EXPECT_EQ(group_after.calls - group_before.calls, 1);
  return after.bytes - before.bytes;
}

/// Checks counts with 64 n elements of 8 bytes, whose parts have 512 bytes even where
/// they are cut at multiples of 16 elements.
void check_counts(Communicator& c) {
  const int64_t n = c.size();
  const int64_t whole = 512 * n;
  std::vector<int64_t> x(static_cast<size_t>(64 * n));
  std::vector<int64_t> y(x.size());
  const Buffer all{x.data(), 64 * n, format::DType::I64};
  const Buffer part{y.data(), 64, format::DType::I64};
  const auto sum = [](int64_t mine, Communicator& group) {
    group.all_reduce_wait({&mine, 1, format::DType::I64}, ReduceOp::Sum);
    return mine;
  };
  // In a tree every rank but the first sends and receives everything; otherwise every
  // part is sent twice. Together this is the same.
  const int64_t reduce =
      sum(sent_by(c, Verb::AllReduce, [&] { c.all_reduce_wait(all, ReduceOp::Sum); }), c);
  EXPECT_EQ(reduce, 2 * (n - 1) * whole);
  EXPECT_EQ(sent_by(c, Verb::AllGather, [&] { c.all_gather(part, all)->wait(); }),
            whole - 512);
  EXPECT_EQ(sent_by(c, Verb::ReduceScatter,
                    [&] { c.reduce_scatter(all, part, ReduceOp::Sum)->wait(); }),
            whole - 512);
  EXPECT_EQ(
      sent_by(c, Verb::AllToAll,
              [&] { c.all_to_all(all, {y.data(), 64 * n, format::DType::I64})->wait(); }),
      whole - 512);
  // Every rank but the root receives everything once; the parts of a long message take a
  // second way.
  const int64_t broadcast =
      sum(sent_by(c, Verb::Broadcast, [&] { c.broadcast(all, 0)->wait(); }), c);
  EXPECT_EQ(broadcast, (n - 1) * whole);
  EXPECT_EQ(sent_by(c, Verb::Barrier, [&] { c.barrier_wait(); }), 0);
  using Kind = Transfer::Kind;
  std::vector<Transfer> transfers;
  if (n > 1) {
    const int next = (c.rank() + 1) % c.size();
    const int before = (c.rank() + c.size() - 1) % c.size();
    transfers = {{Kind::Send, next, all},
                 {Kind::Recv, before, {y.data(), 64 * n, format::DType::I64}}};
  }
  EXPECT_EQ(sent_by(c, Verb::SendRecv, [&] { c.send_recv(transfers)->wait(); }),
            n > 1 ? whole : 0);
}

/// Expects that the operations of a split group are counted in the world's ledger.
void check_ledger(Communicator& c) {
  const auto part = c.split(0, c.rank(), "part");
  EXPECT_EQ(&part->ledger(), &c.ledger());
  const Label label(c.ledger(), "a check");
  EXPECT_EQ(part->ledger().label(), "a check");
  const WorkPtr work = part->barrier();
  work->wait();
  EXPECT_EQ(c.ledger().under_way(), 0);
}

void check_contracts(Communicator& c) {
  float x = 0;
  EXPECT_THROW(c.broadcast({&x, 1, format::DType::F32}, c.size()), Error);
  EXPECT_THROW(c.all_reduce({&x, 1, format::DType::F16}, ReduceOp::Sum), Error);
  EXPECT_THROW(c.all_reduce({&x, -1, format::DType::F32}, ReduceOp::Sum), Error);
  EXPECT_THROW(c.all_reduce({nullptr, 1, format::DType::F32}, ReduceOp::Sum), Error);
  EXPECT_THROW(
      c.all_gather({&x, 1, format::DType::F32}, {&x, c.size() + 1, format::DType::F32}),
      Error);
  EXPECT_THROW(
      c.all_gather({&x, 1, format::DType::F32}, {&x, c.size(), format::DType::I32}),
      Error);
  using Kind = Transfer::Kind;
  EXPECT_THROW(c.send_recv({{Kind::Send, c.rank(), {&x, 1, format::DType::F32}}}), Error);
  c.barrier_wait();  // refused calls have no effect
}

}  // namespace

std::vector<Conformance> conformance_checks() {
  return {{"AllReduceF32AddsInRankOrder", check_all_reduce<float>},
          {"AllReduceF64AddsInRankOrder", check_all_reduce<double>},
          {"AllReduceBf16RoundsOnceAtTheEnd", check_all_reduce<Bf16>},
          {"AllReduceI64", check_all_reduce<int64_t>},
          {"ReduceScatterF32AddsInRankOrder", check_reduce_scatter<float>},
          {"ReduceScatterBf16RoundsOnceAtTheEnd", check_reduce_scatter<Bf16>},
          {"TheDataShowTheOrder", check_order_matters},
          {"MaxKeepsNan", check_max_keeps_nan},
          {"AllGather", check_all_gather},
          {"AllToAll", check_all_to_all},
          {"Broadcast", check_broadcast},
          {"SendRecvAroundARing", check_send_recv},
          {"TransfersOvertakeCollectives", check_transfer_overtakes},
          {"ManyOperationsUnderWay", check_many_under_way},
          {"SplitOrdersByKey", check_split},
          {"GroupsProgressTogether", check_groups_progress_together},
          {"Helpers", check_helpers},
          {"CountsFollowTheAlgorithms", check_counts},
          {"GroupsShareTheLedger", check_ledger},
          {"WrongArgumentsAreRefused", check_contracts}};
}

void check_deadline(Communicator& group) {
  if (group.rank() == 0) {
    const auto barrier = group.barrier();
    try {
      barrier->wait();
      ADD_FAILURE() << "a barrier of one rank ended";
    } catch (const TemporaryError& e) {
      const std::string text = e.what();
      const std::string expected = "barrier number 1 (0 bytes) on 'world', rank 0 of " +
                                   std::to_string(group.size()) +
                                   ", did not end within 0.3 s";
      EXPECT_NE(text.find(expected), std::string::npos) << text;
    }
    while (!barrier->test()) std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    group.barrier_wait();
  }
}

CommOptions tiny_messages() {
  CommOptions options;
  options.scratch_bytes = 20000;
  options.max_message_bytes = 5000;
  options.tree_bytes = 64;
  return options;
}

}  // namespace longhaul::comm
