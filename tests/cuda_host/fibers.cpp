#include "tests/cuda_host/fibers.h"

#include <cuda_runtime.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// The function saves the registers that a call must keep on the current stack, and goes
// on with the other stack.
asm(R"(
.text
.p2align 4
.type longhaul_switch_stack, @function
longhaul_switch_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size longhaul_switch_stack, .-longhaul_switch_stack
)");
extern "C" void longhaul_switch_stack(void** save, void* go_on);

namespace longhaul::cuda_host {
namespace {

constexpr size_t kStackBytes = size_t{128} << 10;

enum class State { Ready, AtBarrier, AtShuffle, Done };

/// A thread of the block that runs, with a stack of its own.
struct Fiber {
  void* stack = nullptr;  ///< stack pointer with which the fiber goes on
  State state = State::Done;
  std::source_location at;
  unsigned mask = 0;
  uint64_t mine = 0;
};

/// The state of run_grid(): all fibers, and the stack of the loop that runs them.
struct Machine {
  Order order = Order::Ascending;
  std::byte* stacks = nullptr;
  std::array<Fiber, kMostThreads> fibers;
  std::array<uint64_t, kMostThreads> shown = {};  ///< values at the last shuffle
  void* main = nullptr;
  unsigned running = 0;
  const std::function<void()>* thread = nullptr;
  std::string failure;
};

Machine& machine() {
  static Machine one;
  return one;
}

Fiber& own() { return machine().fibers[machine().running]; }

/// Goes back to the loop over the threads.
void leave(State state) {
  own().state = state;
  longhaul_switch_stack(&own().stack, machine().main);
}

/// Runs the thread's function; every fiber begins here.
void begin_fiber() {
  (*machine().thread)();
  leave(State::Done);
  __builtin_unreachable();
}

void prepare(unsigned number) {
  Machine& m = machine();
  std::byte* bottom = m.stacks + number * kStackBytes;
  // The stack holds six registers, the address to return to, and one word for the
  // alignment of a call.
  auto* top = reinterpret_cast<void**>(bottom + kStackBytes) - 8;
  std::fill(top, top + 8, nullptr);
  top[6] = reinterpret_cast<void*>(&begin_fiber);
  m.fibers[number].stack = static_cast<void*>(top);
  m.fibers[number].state = State::Ready;
}

std::string place(const Fiber& fiber) {
  if (fiber.state == State::Done) return "has ended";
  return fmt::format("waits at {}:{}", fiber.at.file_name(), fiber.at.line());
}

[[noreturn]] void fail_with(const std::string& what) {
  throw Error(ErrorKind::Internal, "cuda", what);
}

/// Throws Error for two threads of which the first waits for a place that the second does
/// not reach.
[[noreturn]] void diverged(const char* what, unsigned one, unsigned other) {
  const Machine& m = machine();
  fail_with(fmt::format("{} in divergent code, block {}: thread {} {}, thread {} {}",
                        what, blockIdx.x, one, place(m.fibers[one]), other,
                        place(m.fibers[other])));
}

bool same_place(const Fiber& a, const Fiber& b) {
  return a.state == b.state && a.at.line() == b.at.line() &&
         std::string_view(a.at.file_name()) == b.at.file_name();
}

/// Shows the values of the lanes of a warp once all lanes of the mask have come; returns
/// whether they have. Throws Error if a lane cannot come any more.
bool release_shuffle(unsigned number) {
  Machine& m = machine();
  const Fiber& fiber = m.fibers[number];
  const unsigned first = number / kWarpSize * kWarpSize;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if ((fiber.mask >> lane & 1U) == 0) continue;
    const Fiber& other = m.fibers[first + lane];
    if (first + lane >= blockDim.x || other.state == State::Done) {
      diverged("a shuffle", number, first + lane);
    }
    if (!same_place(fiber, other) || other.mask != fiber.mask) return false;
  }
  const unsigned mask = fiber.mask;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if ((mask >> lane & 1U) == 0) continue;
    m.shown[first + lane] = m.fibers[first + lane].mine;
    m.fibers[first + lane].state = State::Ready;
  }
  return true;
}

unsigned turn(unsigned number, unsigned count) {
  switch (machine().order) {
    case Order::Ascending:
      return number;
    case Order::Descending:
      return count - 1 - number;
    case Order::Interleaved:
      break;
  }
  const unsigned half = (count + 1) / 2;  // odd numbers first
  return number < count - half ? 2 * number + 1 : 2 * (number - (count - half));
}

/// Runs the threads of a warp until each has ended or waits for other warps: the warp is
/// then as far ahead of the other warps as it may be.
void run_warp(unsigned first, unsigned count) {
  Machine& m = machine();
  bool any = true;
  while (any) {
    for (unsigned i = 0; i < count; ++i) {
      m.running = first + turn(i, count);
      if (m.fibers[m.running].state != State::Ready) continue;
      threadIdx.x = m.running;
      longhaul_switch_stack(&m.main, m.fibers[m.running].stack);
      if (!m.failure.empty()) fail_with(std::exchange(m.failure, {}));
    }
    any = false;
    for (unsigned i = first; i < first + count; ++i) {
      if (m.fibers[i].state == State::AtShuffle) any = release_shuffle(i) || any;
    }
  }
}

/// Lets the threads of the block go on if all wait at one barrier. Throws Error if they
/// do not.
void release_barrier() {
  Machine& m = machine();
  const auto end = m.fibers.begin() + blockDim.x;
  const auto waiting = std::find_if(
      m.fibers.begin(), end, [](const Fiber& f) { return f.state != State::Done; });
  const auto other = std::find_if_not(
      m.fibers.begin(), end, [&](const Fiber& f) { return same_place(f, *waiting); });
  if (waiting->state != State::AtBarrier || other != end) {
    diverged(waiting->state == State::AtBarrier ? "a barrier" : "a shuffle",
             static_cast<unsigned>(waiting - m.fibers.begin()),
             static_cast<unsigned>((other == end ? waiting : other) - m.fibers.begin()));
  }
  for (unsigned i = 0; i < blockDim.x; ++i) m.fibers[i].state = State::Ready;
}

void run_block() {
  const unsigned count = blockDim.x;
  const unsigned warps = (count + kWarpSize - 1) / kWarpSize;
  for (unsigned i = 0; i < count; ++i) prepare(i);
  while (true) {
    for (unsigned w = 0; w < warps; ++w) {
      const unsigned first = turn(w, warps) * kWarpSize;
      run_warp(first, std::min(kWarpSize, count - first));
    }
    const auto* const fibers = machine().fibers.data();
    if (std::all_of(fibers, fibers + count,
                    [](const Fiber& f) { return f.state == State::Done; })) {
      return;
    }
    release_barrier();
  }
}

}  // namespace

void set_order(Order order) { machine().order = order; }

void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& thread) {
  Machine& m = machine();
  LH_CHECK(threads > 0 && threads <= kMostThreads, "cuda", "{} threads in a block",
           threads);
  if (m.stacks == nullptr) {
    void* memory = ::mmap(nullptr, kStackBytes * kMostThreads, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    LH_CHECK(memory != MAP_FAILED, "cuda", "no memory for {} stacks", kMostThreads);
    m.stacks = static_cast<std::byte*>(memory);
  }
  m.thread = &thread;
  gridDim = dim3(blocks);
  blockDim = dim3(threads);
  try {
    for (unsigned i = 0; i < blocks; ++i) {
      blockIdx.x = turn(i, blocks);
      run_block();
    }
  } catch (...) {
    // Threads are left in the middle of a call: the marks of AddressSanitizer in their
    // frames do not count any more.
    ASAN_UNPOISON_MEMORY_REGION(m.stacks, kStackBytes * kMostThreads);
    throw;
  }
}

void wait_for_block(std::source_location at) {
  own().at = at;
  leave(State::AtBarrier);
}

uint64_t exchange(unsigned mask, uint64_t mine, unsigned lane, std::source_location at) {
  Fiber& fiber = own();
  fiber.at = at;
  fiber.mask = mask;
  fiber.mine = mine;
  if ((mask >> own_lane() & 1U) == 0) {
    machine().failure = fmt::format("thread {} is not in the mask {:#x} of its shuffle",
                                    threadIdx.x, mask);
  }
  leave(State::AtShuffle);
  const unsigned from = threadIdx.x / kWarpSize * kWarpSize + lane % kWarpSize;
  return machine().shown[from];
}

unsigned own_lane() { return threadIdx.x % kWarpSize; }

void check_aligned(const volatile void* address, unsigned bytes) {
  // The address is hidden from the compiler, which believes in the type's alignment.
  auto value = reinterpret_cast<uintptr_t>(address);
  asm volatile("" : "+r"(value));
  if (value % bytes == 0) return;
  machine().failure = fmt::format("block {}, thread {}: an access of {} bytes at {:#x}",
                                  blockIdx.x, threadIdx.x, bytes, value);
  leave(State::Done);
}

}  // namespace longhaul::cuda_host
