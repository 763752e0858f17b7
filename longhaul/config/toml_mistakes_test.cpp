#include "longhaul/config/toml_mistakes.h"

#include "tests/support/settings.h"

namespace longhaul::config {
namespace {

/// Returns the message for a run file of this text and name.
std::string read_file(std::string_view text, std::string_view name = "run.toml") {
  return message_of<ConfigError>([&] { parse_run_config(text, name); });
}

void expect_says(const std::string& message, const std::string& words) {
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

TEST(TomlMistakes, AFileOfAnotherLanguageIsCalledThat) {
  const std::string import = "`longhaul import --flags FILE` makes one";
  const std::string yaml = "this is YAML; run files are TOML: " + import;
  EXPECT_EQ(read_file("base_model: llama\nbf16: true\n"),
            "[config] run.toml:1:11: " + yaml + " of a nanotron or axolotl YAML");
  expect_says(read_file("# settings\n---\nsteps: 5\n"), yaml);
  expect_says(read_file("- a\n- b\n", "x.yaml"), yaml);
  expect_says(read_file("{\n  \"steps\": 5\n}\n"), "this is JSON; run files are TOML");
  expect_says(read_file("#!/bin/bash\nsrun python train.py\n"), "this is a script");
  expect_says(read_file("import torch\n", "train.py"), "this is a script");
}

TEST(TomlMistakes, ALineOfAnotherLanguageIsShownAsToml) {
  const std::string head = "[config] run.toml:2:";
  const auto line = [&](const std::string& text) {
    const std::string message = read_file("[run]\n" + text + "\n");
    EXPECT_TRUE(message.starts_with(head)) << message;
    const size_t begin = message.find("not valid TOML: ");
    return begin == std::string::npos ? message : message.substr(begin + 16);
  };
  EXPECT_EQ(line("fused = True"), "True is no TOML; write true");
  EXPECT_EQ(line("fused = no  # yet"), "no is no TOML; write false");
  EXPECT_EQ(line("seed = None"), "TOML has no None: leave the key out");
  EXPECT_EQ(line("seed = null"), "TOML has no null: leave the key out");
  EXPECT_EQ(line("seed: 5"), "'seed: 5' is YAML; TOML writes seed = 5");
  EXPECT_EQ(line("optimizer:"),
            "'optimizer:' is YAML; TOML writes a section as "
            "[optimizer]");
  EXPECT_EQ(line("- path: x"),
            "'- path: x' is an item of a list in YAML; TOML writes "
            "[a, b]");
  EXPECT_EQ(line("dir = runs/a"), "runs/a: a text stands in quotes: \"runs/a\"");
  EXPECT_EQ(line("kind = cosine"), "cosine: a text stands in quotes: \"cosine\"");
  EXPECT_EQ(line("train = [{'path': 'x'}]"),
            "[{'path': 'x'}] is a dictionary of Python or JSON; TOML writes { path = "
            "\"data/wiki\" }");
  EXPECT_EQ(line("betas = (0.9, 0.95)"),
            "(0.9, 0.95): a list stands in brackets: [0.9, 0.95]");
  EXPECT_EQ(line("betas = 0.9, 0.95"),
            "0.9, 0.95: a list stands in brackets: [0.9, 0.95]");
  EXPECT_EQ(line("lr = .5"), ".5: TOML writes 0.5");
  EXPECT_EQ(line("lr = -.5"), "-.5: TOML writes -0.5");
  EXPECT_EQ(line("lr = 1.e-4"),
            "1.e-4: a number in TOML has digits behind its point: 1.0e-4");
  EXPECT_EQ(line("steps = 16k"), "16k stands in quotes (\"16k\"), or as 16000");
  EXPECT_EQ(line("steps = 1,000"),
            "'1,000' may be 1000 or a number with a fraction; write it without commas");
  EXPECT_EQ(line("steps ="), "nothing stands behind the =");
  EXPECT_EQ(line("steps == 8"), "TOML writes one = between key and value");
  EXPECT_EQ(line("steps = 8,"), "8,: a line of TOML ends without a comma: 8");
  EXPECT_EQ(line("lr = 1e-4;"), "1e-4;: a line of TOML ends without a semicolon: 1e-4");
  EXPECT_EQ(line("steps = 8 // eight"), "a comment in TOML begins with #");
  EXPECT_EQ(line("steps = $STEPS"),
            "$STEPS: no variable is replaced in TOML; write the value itself");
  EXPECT_EQ(line("lr = NaN"), "NaN: a setting takes only finite numbers");
  EXPECT_EQ(line("lr = -Infinity"), "-Infinity: a setting takes only finite numbers");
  EXPECT_EQ(line("kind = \"cosine"), "\"cosine: a quote is not closed");
  EXPECT_EQ(line("train = [{\n path = \"a\"\n}]"),
            "a table in braces stands on one line, as { path = \"data/wiki\", weight = 1 "
            "}");
  EXPECT_EQ(line("// a remark"), "a comment in TOML begins with #");
  EXPECT_EQ(line("dir = \u201cruns\u201d"),
            "\u201cruns\u201d: quotes are \"straight\", not typographic");
}

TEST(TomlMistakes, AFileThatIsNoTextIsCalledWhatItIs) {
  expect_says(read_file("\x1f\x8b\x08"), "it is compressed by gzip: unpack it first");
  expect_says(read_file("\xff\xfe[\x01"), "it is UTF-16: save it as UTF-8");
  expect_says(read_file("\x80", "model.safetensors"),
              "its name is that of a file of weights");
  EXPECT_EQ(read_file("# \xe9"), "[config] run.toml: not UTF-8 text (byte 2)");
}

TEST(TomlMistakes, ALineThatIsTomlIsLeftToTheParser) {
  // The message must be about the repeated key, since the form of the line is right.
  const std::string message = read_file("[run]\nseed = 2e3\nseed = 2e3\n");
  expect_says(message, "run.toml:3:");
  EXPECT_EQ(message.find("whole number"), std::string::npos) << message;
}

TEST(TomlMistakes, ALineWithNothingButACommentOrBlanksIsNoMistakeOfItsOwn) {
  for (const char* line : {"# \x1b[31m", "", "  \t", "  # a"}) {
    EXPECT_EQ(what_line_is(line, 1), "") << line;
  }
  // TOML allows no control character such as this one in a comment.
  expect_says(read_file("[run]\n# \x1b[31m\n"), "run.toml:2:3: ");
}

TEST(TomlMistakes, AValueOfSetIsShownAsToml) {
  const auto set = [](const std::string& text) { return refused("", {text}); };
  expect_says(set("data.train=[{'path': 'x'}]"), "is a dictionary of Python or JSON");
  expect_says(set("data.train=[{path=x}]"), "texts stand in quotes, which a shell");
  expect_says(set("optimizer.betas=(0.9, 0.95)"), "a list stands in brackets: [0.9");
  expect_says(set("optimizer.betas=0.9,0.95"), "a list stands in brackets: [0.9,0.95]");
  EXPECT_EQ(set("run.steps=10,optimizer.lr=3"),
            "[config] --set run.steps=10,optimizer.lr=3: each setting has a --set of its "
            "own: --set run.steps=10 --set optimizer.lr=3");
  EXPECT_EQ(set("--run.steps=10"),
            "[config] --set --run.steps=10: a key stands without -- before it: --set "
            "run.steps=10");
  expect_says(set("++run.steps=10"), "a key stands without ++ before it");
  expect_says(set("schedule.warmup_steps=0.1"), "schedule.warmup_fraction takes a share");
  expect_says(set("schedule.warmup_steps=\"10%\""), "schedule.warmup_fraction takes");
  expect_says(set("schedule.warmup_fraction=\"10%\""), "(\"10%\"); write 0.1");
  expect_says(set("checkpoint.every=\"10min\""),
              "checkpoint.every_minutes counts minutes");
  expect_says(set("resilience.comm_timeout_s=\"30min\""), "it is a number of seconds");
  expect_says(set("data.train=\"a\""), "(\"a\"); write [{ path = \"a\" }]");
  expect_says(set("data.train=[\"a\"]"), "(\"a\"); write { path = \"a\" }");
  expect_says(set("data.train={ path = \"a\" }"),
              "; a list stands in brackets: [{ path = \"a\" }]");
  expect_says(set("data.validation=\"a\""),
              "(\"a\"); write [{ name = \"val\", path = \"a\" }]");
  expect_says(set("data.validation=0.1"), "longhaul data build --holdout");
  expect_says(set("run.dir=\"\""), "run.dir is empty, and required: the run's directory");
  expect_says(set("run.dir=\"gs://bucket/run\""), "longhaul opens no addresses but");
  expect_says(set("run.dir=\"s3://bucket/run\""),
              "run.dir = \"s3://bucket/run\": the address of an object, but this key "
              "takes a path of a local or shared file system; checkpoint.mirror copies");
  expect_says(set("model.config=\"s3://KEY:SECRET@bucket/m\""),
              "--set model.config: s3://...@bucket/m: an address holds no credentials");
  expect_says(set("run.hardware=\"s3://bucket/profile.toml\""), "this key takes a path");
  expect_says(set("checkpoint.resume=\"s3://bucket/run\""), "this key takes a path");
  EXPECT_EQ(set("log.tensorboard=True"),
            "[config] --set log.tensorboard=True: log.tensorboard: expected true or "
            "false, found a string (\"True\"); write true");
  EXPECT_EQ(set("log.tensorboard=0"),
            "[config] --set log.tensorboard=0: log.tensorboard: expected true or false, "
            "found an integer (0); write false");
  EXPECT_EQ(set("run.seed=None"),
            "[config] --set run.seed=None: run.seed: expected an integer, found a string "
            "(\"None\"); TOML has no null: leave the key out (--set run.seed= takes it "
            "out)");
  EXPECT_EQ(set("optimizer.lr=\"1e-4\""),
            "[config] --set optimizer.lr=\"1e-4\": optimizer.lr: expected a number, "
            "found a string (\"1e-4\"); write 1e-4 without quotes");
}

}  // namespace
}  // namespace longhaul::config
