#include "longhaul/system/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

namespace longhaul::system {
namespace {

/// Runs a function in a child whose standard output is `output`, and returns its result.
template <typename Function>
bool in_child(int output, Function function) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(output, STDOUT_FILENO);
    ::setenv("TERM", "xterm", 1);
    ::_exit(function() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

class Pty {
 public:
  Pty() : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    ::grantpt(master_);
    ::unlockpt(master_);
    slave_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
  }
  ~Pty() {
    ::close(slave_);
    ::close(master_);
  }
  int slave() const { return slave_; }

 private:
  int master_;
  int slave_ = -1;
};

TEST(Terminal, AFileIsNoneAndAPseudoTerminalIs) {
  const Pty pty;
  const int file = ::open("/dev/null", O_WRONLY);
  EXPECT_TRUE(in_child(pty.slave(), [] { return is_terminal(STDOUT_FILENO); }));
  EXPECT_FALSE(in_child(file, [] { return is_terminal(STDOUT_FILENO); }));
  EXPECT_FALSE(in_child(pty.slave(), [] {
    ::setenv("TERM", "dumb", 1);
    return is_terminal(STDOUT_FILENO);
  }));
  ::close(file);
}

TEST(Terminal, ARankOfMpirunHasTheOneThatMpirunHas) {
  const Pty pty;
  const int file = ::open("/dev/null", O_WRONLY);
  const auto rank_of_mpirun = [&](int output_of_mpirun) {
    return in_child(output_of_mpirun, [&] {
      ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
      return in_child(pty.slave(), [] { return is_terminal(STDOUT_FILENO); });
    });
  };
  EXPECT_TRUE(rank_of_mpirun(pty.slave()));
  EXPECT_FALSE(rank_of_mpirun(file));
  ::close(file);
}

TEST(Terminal, ALineIsShownAndNotObeyed) {
  EXPECT_EQ(printable("runs/\033[2Ja\nlonghaul: b\r\x7f\x01\tc"),
            "runs/\\x1b[2Ja\\nlonghaul: b\\r\\x7f\\x01\tc");
  EXPECT_EQ(printable("caf\xc3\xa9 \xc2\xa0 \xe2\x80\xa6"),
            "caf\xc3\xa9 \xc2\xa0 \xe2\x80\xa6");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b"
            "2J");
  EXPECT_EQ(printable("cut \xc2"), "cut \xc2");
}

TEST(Terminal, WarningsAndErrorsAreColouredOnOneAndUnlessNoColorIsSet) {
  const Pty pty;
  const int file = ::open("/dev/null", O_WRONLY);
  ::unsetenv("NO_COLOR");
  const auto coloured = [] {
    return warning_text("w", STDOUT_FILENO) == "\033[33mw\033[0m" &&
           error_text("e", STDOUT_FILENO) == "\033[31me\033[0m";
  };
  const auto plain = [] {
    return warning_text("w", STDOUT_FILENO) == "w" &&
           error_text("e", STDOUT_FILENO) == "e";
  };
  EXPECT_TRUE(in_child(pty.slave(), coloured));
  EXPECT_TRUE(in_child(file, plain));
  EXPECT_TRUE(in_child(pty.slave(), [&] {
    ::setenv("NO_COLOR", "1", 1);
    return plain();
  }));
  ::close(file);
}

TEST(DescribeCommand, IsWrittenAsAPersonWouldTypeIt) {
  EXPECT_EQ(describe_command({"srun", "-N4", "a b", "it's", ""}),
            "srun -N4 'a b' 'it'\\''s' ''");
}

}  // namespace
}  // namespace longhaul::system
