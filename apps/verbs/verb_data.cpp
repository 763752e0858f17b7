#include "apps/verbs.h"

namespace longhaul::apps {

void add_data(CLI::App& program, Outcome& outcome) {
  CLI::App* verb =
      program.add_subcommand("data", "Makes training data, looks at it, splits it");
  verb->require_subcommand(1);
  verb->footer("Example: longhaul data build --help");
  add_data_build(*verb, outcome);
  add_data_build_bert(*verb, outcome);
  add_data_export(*verb, outcome);
  add_data_inspect(*verb, outcome);
  add_data_split(*verb, outcome);
  add_train_tokenizer(*verb, outcome);
}

}  // namespace longhaul::apps
