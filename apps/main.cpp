#include <fmt/format.h>

#include <exception>

#include "apps/verbs.h"
#include "apps/version.h"
#include "longhaul/base/error.h"

int main(int argc, char** argv) {
  using namespace longhaul::apps;
  CLI::App program("Pretrains and continues to pretrain large language models.", "longhaul");
  program.set_version_flag("--version", version_text,
                           "Print the version, the commit and every library's version");
  program.require_subcommand(1);
  Outcome outcome;
  add_config(program, outcome);
  add_data(program, outcome);
  add_eval(program, outcome);
  add_export(program, outcome);
  add_generate(program, outcome);
  add_inspect(program, outcome);
  add_recipe(program, outcome);
  add_train(program, outcome);
  add_verify(program, outcome);

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
