#include "longhaul/monitor/terminal_writer.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <string_view>

#include "longhaul/base/file.h"
#include "longhaul/system/terminal.h"

namespace longhaul::monitor {
namespace {

// Switches to the terminal's alternate screen, hides the cursor and stops the wrapping of
// lines.
constexpr std::string_view kEnter = "\033[?1049h\033[?25l\033[?7l";
constexpr std::string_view kLeave = "\033[?7h\033[?25h\033[?1049l";
// Terminals that know this sequence show nothing until the update ends.
constexpr std::string_view kBeginUpdate = "\033[?2026h\033[H";
constexpr std::string_view kEndUpdate = "\033[J\033[?2026l";

/// Writes to the terminal. A terminal that is gone is no error here: the program ends
/// when it next checks its signals.
void write_out(std::string_view text) { (void)write_descriptor(STDOUT_FILENO, text); }

void ignore(int /*signal*/) {}

}  // namespace

void sleep_seconds(double seconds) {
  ::poll(nullptr, 0, static_cast<int>(std::ceil(seconds * 1000.0)));
}

struct Terminal::Saved {
  termios input{};
  bool has_input = false;
  struct sigaction resized{};
};

bool Terminal::available() { return system::is_terminal(STDOUT_FILENO); }

Terminal::Terminal() : saved_(std::make_unique<Saved>()) {
  saved_->has_input =
      ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &saved_->input) == 0;
  if (saved_->has_input) {
    termios keys = saved_->input;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  // The handler only has to interrupt the wait for a key.
  struct sigaction action{};
  action.sa_handler = ignore;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGWINCH, &action, &saved_->resized);
  write_out(kEnter);
}

Terminal::~Terminal() {
  write_out(kLeave);
  if (saved_->has_input) ::tcsetattr(STDIN_FILENO, TCSANOW, &saved_->input);
  ::sigaction(SIGWINCH, &saved_->resized, nullptr);
}

ScreenSize Terminal::window() {
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) {
    return {80, 24};
  }
  return {std::max<size_t>(window.ws_col, 20), std::max<size_t>(window.ws_row, 5)};
}

void Terminal::draw(const std::vector<std::string>& lines) {
  std::string frame(kBeginUpdate);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) frame += "\r\n";
    frame += lines[i] + "\033[K";
  }
  frame += kEndUpdate;
  write_out(frame);
}

char Terminal::wait_key(double seconds) {
  pollfd keys{STDIN_FILENO, POLLIN, 0};
  const auto wait = static_cast<int>(std::ceil(seconds * 1000.0));
  const int ready = ::poll(&keys, saved_->has_input ? 1 : 0, wait);
  char key = 0;
  if (ready > 0 && ::read(STDIN_FILENO, &key, 1) != 1) {
    // The terminal was closed. The sleep keeps the caller from a busy loop until the
    // signal for it comes.
    sleep_seconds(seconds);
    return 0;
  }
  return key;
}

}  // namespace longhaul::monitor
