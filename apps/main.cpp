#include <fmt/format.h>

#include <exception>

#include "apps/verbs.h"
#include "longhaul/base/error.h"

int main(int argc, char** argv) {
  using namespace longhaul::apps;
  CLI::App program("Pretrains and continues to pretrain large language models.", "longhaul");
  program.require_subcommand(1);
  Outcome outcome;

  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0;  // --help
    program.exit(error);
    return asked ? 0 : 78;
  } catch (const longhaul::Error& error) {
    fmt::print(stderr, "longhaul: error: {}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "longhaul: error: [internal] {}\n", error.what());
    return 1;
  }
  return outcome.exit_code;
}
