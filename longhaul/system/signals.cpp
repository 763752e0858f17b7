#include "longhaul/system/signals.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::system {
namespace {

constexpr std::array kWatched = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU};
constexpr std::array<const char*, kWatched.size()> kWatchedNames = {
    "SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGXCPU"};

// A handler can reach nothing but statics. SignalWatch is their only user; other threads
// read them.
std::atomic<int> first_signal = 0;
std::atomic<int> interrupts = 0;
std::atomic<int> newest_signal = 0;
std::atomic<int> newest_sender = 0;
std::atomic<int> answered = 0;
/// A RehearsedSignal: 0 where none lives, kAwaited until the watch has noted the signal,
/// then kNoted, and kShown from RehearsedSignal::show() on.
std::atomic<int> rehearsed = 0;
constexpr int kAwaited = 1;
constexpr int kNoted = 2;
constexpr int kShown = 3;
/// The value with which a RehearsedSignal is sent; no signal has this number.
constexpr int kRehearsal = -1;
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<int> most_interrupts = 1;
// The text of set_last_words() has two buffers. The signal handler reads one while
// set_last_words() writes the other.
constexpr size_t kWords = 400;
std::array<std::array<char, kWords>, 2> words;
std::atomic<int> words_in_use = 0;
bool watching = false;
std::array<struct sigaction, kWatched.size()> previous;

bool is_watched(int number) {
  return std::ranges::find(kWatched, number) != kWatched.end();
}

void note(int number, siginfo_t* info, void* /*context*/) {
  if (info->si_code == SI_QUEUE && info->si_value.sival_int == kRehearsal &&
      info->si_pid == ::getpid()) {
    int awaited = kAwaited;
    rehearsed.compare_exchange_strong(awaited, kNoted);
    return;
  }
  newest_sender = info->si_code == SI_USER ? info->si_pid : 0;
  if (info->si_code == SI_QUEUE && is_watched(info->si_value.sival_int)) {
    // A supervisor has handed the signal on (RaisedSignal).
    const int cause = info->si_value.sival_int;
    newest_signal = cause;
    if (first_signal == 0) first_signal = cause;
    return;
  }
  newest_signal = number;
  if (number == SIGINT) interrupts = interrupts + 1;
  if (interrupts > most_interrupts) {
    const char* said = words[static_cast<size_t>(words_in_use.load())].data();
    for (const char* part : {*said == '\0' ? "" : "longhaul: ended at once: ", said}) {
      // The write must not wait, since stderr may have no reader.
      pollfd room{STDERR_FILENO, POLLOUT, 0};
      if (::poll(&room, 1, 0) <= 0) continue;
      static_cast<void>(!::write(STDERR_FILENO, part, std::strlen(part)));
    }
    _exit(128 + SIGINT);
  }
  if (first_signal == 0) first_signal = number;
}

}  // namespace

SignalWatch::SignalWatch() {
  LH_ASSERT(!watching, "two signal watches at once");
  watching = true;
  first_signal = system::interrupts = newest_signal = newest_sender = answered = 0;
  most_interrupts = 1;
  struct sigaction action{};
  action.sa_sigaction = note;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kWatched.size(); ++i) {
    sigaction(kWatched[i], nullptr, &previous[i]);
    if (kWatched[i] == SIGHUP && previous[i].sa_handler == SIG_IGN) continue;  // nohup
    sigaction(kWatched[i], &action, nullptr);
  }
}

SignalWatch::~SignalWatch() {
  for (size_t i = 0; i < kWatched.size(); ++i)
    sigaction(kWatched[i], &previous[i], nullptr);
  watching = false;
}

int SignalWatch::raised() const { return first_signal; }

void SignalWatch::count_interrupts() { most_interrupts = 2; }

int SignalWatch::interrupts() const { return system::interrupts; }

void set_last_words(const std::string& line) {
  const int next = 1 - words_in_use;
  auto& text = words[static_cast<size_t>(next)];
  const size_t bytes = std::min(line.size(), kWords - 2);
  line.copy(text.data(), bytes);
  std::strcpy(text.data() + bytes, line.empty() ? "" : "\n");
  words_in_use = next;
}

std::string last_words() {
  const std::string text = words[static_cast<size_t>(words_in_use.load())].data();
  return text.substr(0, text.find('\n'));
}

RaisedSignal raised_signal() {
  if (!watching) return {};
  if (newest_signal == 0 && rehearsed == kShown) {
    return {RehearsedSignal::number(), ::getpid(), false};
  }
  return {newest_signal, newest_sender, answered != 0};
}

RehearsedSignal::RehearsedSignal(double seconds) {
  LH_ASSERT(rehearsed == 0, "two rehearsed signals at once");
  if (!watching) return;  // the signal would end the process
  rehearsed = kAwaited;
  sigval value{};
  value.sival_int = kRehearsal;
  if (::sigqueue(::getpid(), number(), value) != 0) return;
  const Stopwatch watch;
  while (!noted() && watch.seconds() < seconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

RehearsedSignal::~RehearsedSignal() {
  rehearsed = 0;
  // Only this signal was answered, unless another has come.
  if (newest_signal == 0) answered = 0;
}

int RehearsedSignal::number() { return SIGUSR1; }

bool RehearsedSignal::noted() const { return rehearsed >= kNoted; }

void RehearsedSignal::show() {
  if (noted()) rehearsed = kShown;
}

void answer_signal() { answered = 1; }

void ignore_signals_until_exit() {
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  for (size_t i = 0; i < kWatched.size(); ++i) {
    sigaction(kWatched[i], &ignore, nullptr);
    previous[i] = ignore;
  }
}

void leave_signals_to_main_thread() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

const char* signal_name(int number) {
  const auto* const watched = std::ranges::find(kWatched, number);
  return watched == kWatched.end() ? strsignal(number)
                                   : kWatchedNames[watched - kWatched.begin()];
}

}  // namespace longhaul::system
