"""Commands that people type in their first hour, and answers that say how to go on."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest
from refusals import refused, refused_without_a_trace, shards, training_refused
from small_model import TRAINING
from test_bad_input import VERBS

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
HUB = "meta-llama/Llama-3.2-1B"
NOT_FETCHED = (f"{HUB}: no such file or directory", "fetches nothing", "docs/offline.md")


# --- names of a hub, addresses, names that are nearly right

@pytest.mark.parametrize("arguments", [
    ["inspect", HUB], ["export", HUB, "--out", "out"], ["generate", HUB, "--prompt", "x"],
    ["eval", HUB, "--data", "data/mine"], ["verify", HUB], ["import", HUB, "--out", "out"],
    ["generate", "models/small", "--prompt", "x", "--tokenizer", HUB],
    ["data", "build", "corpus/*.txt", "--tokenizer", HUB, "--out", "out"],
    ["data", "build", HUB, "--tokenizer", "models/small", "--out", "out"],
    ["eval", "models/small", "--data", HUB]], ids=" ".join)
def test_a_name_of_a_hub_is_not_fetched(run, root, arguments):
    refused_without_a_trace(run, root, arguments, *NOT_FETCHED)


@pytest.mark.parametrize("key", [f'init.weights="{HUB}"', f'model.config="{HUB}"',
                                 f'data.train=[{{path="{HUB}"}}]'])
def test_a_name_of_a_hub_in_a_configuration_is_not_fetched(run, root, key):
    training_refused(run, root, [key], *NOT_FETCHED)


def test_an_address_is_not_fetched(run, root):
    refused_without_a_trace(run, root, ["inspect", f"https://huggingface.co/{HUB}"],
                            "reads like an address", "docs/offline.md")


def test_a_path_that_is_nearly_right_leads_to_the_right_one(run, root):
    refused_without_a_trace(run, root, ["inspect", "model/small"], "did you mean models/small?")
    refused_without_a_trace(run, root, ["train", "runn.toml"], "did you mean run.toml?")
    training_refused(run, root, ['data.train=[{path="data/mien"}]'], "did you mean data/mine?")


# --- flags of other trainers

@pytest.mark.parametrize("flags,sets", [
    (["--steps", "5"], "--set run.steps=5"),
    (["--lr=1e-4"], "--set optimizer.lr=1e-4"),
    (["--batch-size", "8"], "here batch.global_size and batch.micro_size say it"),
    (["--learning_rate", "1e-4"], "--set optimizer.lr=1e-4"),
    (["--optimizer.lr", "1e-4"], "--set optimizer.lr=1e-4"),
    (["--seq-length", "64"], "--set data.seq_len=64"),
    (["--data", "data/x"], """--set 'data.train=[{path="data/x"}]'"""),
    (["--every", "5"], "--set checkpoint.every=5 or --set log.every=5 or --set validation.every=5"),
    (["--set", "run.steps=5", "--sed", "1"], "--set run.seed=1"),
    (["--set", "run.steps", "5"], "--set run.steps=5"),
    (["--grad_accum_usteps", "4"], "the accumulation follows: batch.global_size / (batch.micro_size x"),
    (["--adam-beta1", "0.9"], "both stand there, as optimizer.betas = [0.9, 0.95]"),
    (["--use_flash_attention", "1"], "no key takes its place: no form of attention holds"),
    (["--config", "run.toml"], "the run's file is given without an option: longhaul train run.toml"),
    (["--frobnicate"], "`longhaul config` lists them all"),
])
def test_a_flag_for_a_setting_names_the_set_that_does_it(run, root, flags, sets):
    refused_without_a_trace(run, root, ["train", "run.toml", *flags], sets)


def test_verbs_that_start_runs_know_flags_for_settings_too(run, root):
    for verb in ("launch", "submit", "config"):
        refused_without_a_trace(run, root, [verb, "run.toml", "--lr", "1e-4"],
                                "--set optimizer.lr=1e-4")


def test_only_verbs_with_a_run_file_take_settings(run, root):
    for verb in (["doctor"], ["bench"]):
        refused_without_a_trace(run, root, [*verb, "--set", "optimizer.eps=8"], "--set requires")
        refused_without_a_trace(run, root, [*verb, "--gpus", "8"], "srun or mpirun says")
    refused_without_a_trace(run, root, ["inspect", "models/small", "--set", "run.steps=8"],
                            "--set goes with a run's TOML file")


@pytest.mark.parametrize("arguments,words", [
    (["run.toml"], ["did you mean 'longhaul train run.toml'?"]),
    (["help"], ["longhaul --help"]),
    (["data", "build", "corpus/*.txt", "--tokenizer", "models/small"],
     ["--out is required", "longhaul data build --help"]),
    (["verify", "models/small"], ["nothing else has hashes", "longhaul inspect"]),
    (["generate", "data/mine", "--prompt", "x"], ["data/mine: is a token store"]),
    (["generate", "models/small", "--prompt", "x", "--tokenizer", "run.toml"],
     ["run.toml: is neither a .json nor a .model"]),
    (["train", "run.toml", "--set", "steps=5"], ["did you mean run.steps"]),
    (["train", "run.toml", "--set", 'data.train="data/mine"'],
     ["expected an array of { path = path | array of paths", "found a string"]),
    (["train", "data"], ["data: a directory", "longhaul recipe list"]),
    (["train"], ["config is required, as in longhaul train run.toml"]),
    (["new", "models/small"], ["data is required, as in longhaul new models/Llama-3-8B data/wiki"]),
    (["new", "models/small", "data/mine", "--set", "run.steps=5"],
     ["change the file that it writes", "longhaul train"]),
    (["train", "run.toml", "--resume"], ["the same command goes on from the newest checkpoint"]),
    (["train", "run.toml", "--wandb"], ["longhaul docs watching#tensorboard"]),
    (["train", "run.toml", "--set", "precision.compute=fp16"],
     ['"fp16" is not one of "fp32", "bf16"; there is no fp16']),
    (["data", "build", "corpus/*.txt", "--tokenizer", "gpt2", "--out", "out"], ["longhaul fetches nothing"]),
    (["data", "inspect", "nothing"], ["nothing: no such file or directory"]),
    (["data", "show", "--help"], ["there is no verb 'data show'", "train-tokenizer"]),
    (["trian", "--help"], ["there is no verb 'trian'; did you mean 'train'?"]),
    (["watch", "run.toml"], ["run.toml is a run file", "here runs/mine"]),
    (["export", "runs/absent", "--out", "out"], ["runs/absent: no such file or directory"]),
    (["compare", "models/small", "models/small"], ["models/small is a Hugging Face directory"]),
    (["recipe", "show", "llama"], ["there are", "llama2-7b"]),
    (["docs", "lora"], ["these pages have the word:", "adapters"]),
    (["doctor", "--gpu"], ["it looks at the GPUs that it finds"]),
    (["submit", "run.toml", "--nodes", "2", "--time", "8h", "--dry-run"], ["write 30 (minutes), 8:00:00 or 2-0"]),
    (["inspect", "adapter"], ["the directory of an adapter (LoRA)", "name its base model"]),
    (["new", "adapter", "data/mine"], ["the directory of an adapter (LoRA)"]),
    (["import", "m.gguf", "--out", "out"], ["m.gguf: byte 4: the version needs 4 bytes"]),
    (["inspect", "m.gguf"], ["GGUF files are for inference", "longhaul import FILE.gguf"]),
    (["train", "run.toml", "--set", "model.config=data/mine", "--set", "run.dir=run.toml/x"],
     ["a file stands where a directory was meant to be"]),
], ids=lambda value: "-".join(value[:2]).replace("/", "_") if "." not in value[0] else None)
def test_other_slips_of_a_first_hour(run, root, arguments, words):
    (root / "adapter").mkdir()
    (root / "adapter/adapter_config.json").write_text("{}")
    (root / "m.gguf").write_bytes(b"GGUF")
    refused_without_a_trace(run, root, arguments, *words)


def test_what_this_machine_lacks_is_said_with_what_to_type(run, root):
    training_refused(run, root, ["run.device=cuda"], "longhaul docs devices")
    training_refused(run, root, ["parallel.tp=2"], "(longhaul launch -n 2)")


def test_a_token_store_in_place_of_a_model_is_called_one(run, root):
    for key in ("model.config", "init.weights"):
        training_refused(run, root, [f'{key}="data/mine"'], "token store, which is data")


# --- files of another kind

def test_text_given_to_train_names_data_build(run, root):
    (root / "a.jsonl").write_text('{"text": "some text"}\n' * 200)
    for path in ("a.jsonl", "corpus/000.txt", "corpus/*.txt", "corpus", "corpus/part-0.jsonl.gz"):
        training_refused(run, root, [f'data.train=[{{path="{path}"}}]'], "longhaul data build")


def test_inspect_says_which_verb_is_for_a_file(run, root):
    refused_without_a_trace(run, root, ["inspect", "run.toml"], "longhaul config run.toml")
    refused_without_a_trace(run, root, ["inspect", "corpus/000.txt"], "longhaul data build")
    refused_without_a_trace(run, root, ["inspect", "models/small/config.json"],
                            "give the directory that it is in")


def test_inspect_knows_a_tokenizers_directory(run, root):
    run("longhaul", "data", "train-tokenizer", "corpus/*.txt", "--out", "mine", "--vocab-size",
        "300", cwd=root)
    text = run("longhaul", "inspect", "mine", cwd=root).stdout
    assert "BPE, 300 tokens" in text and "a tokenizer's directory" in text
    assert "NOT complete" not in text


def test_a_file_of_unknown_kind_is_no_text_unless_it_is_said_to_be(run, root):
    (root / "wiki_00").write_text('{"text": "some text"}\n')
    (root / "a.data").write_text("some text")
    build = ["data", "build", "--tokenizer", "models/small", "--out", "out"]
    refused_without_a_trace(run, root, [*build, "wiki_00"], "wiki_00: a name without an ending",
                            ".jsonl", ".parquet", "--format text, jsonl")
    refused_without_a_trace(run, root, [*build, "a.data"], "the ending .data", ".txt")
    run("longhaul", *build, "wiki_00", "--format", "jsonl", cwd=root)


def test_a_git_lfs_pointer_in_place_of_weights_is_called_one(run, root):
    shards(root / "models/small")[1].write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4976698672\n")
    training_refused(run, root, [], "Git LFS pointer", "git lfs pull")


def test_a_download_that_broke_off_names_both_sizes(run, root):
    shard = shards(root / "models/small")[1]
    size = shard.stat().st_size
    os.truncate(shard, size // 2)
    training_refused(run, root, [], f"{size / 2000:.1f} kB of {size / 1000:.1f} kB are there",
                     "copy or download it again")


# --- runs

TRAIN = ["train", "run.toml", "--set", "run.steps=4", "--set", "checkpoint.every=2", "--set",
         "checkpoint.keep=0", "--set", "validation.every=0"]


@pytest.fixture(scope="module")
def trained(run, made, tmp_path_factory):
    place = tmp_path_factory.mktemp("trained")
    shutil.copytree(made, place, dirs_exist_ok=True)
    (place / "run.toml").write_text(TRAINING)
    run("longhaul", *TRAIN, cwd=place)
    return place


@pytest.fixture
def damaged(trained, tmp_path):
    """A copy of the run whose newest checkpoint has all its files, with one wrong bit in one of
    them."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    file = next((tmp_path / "runs/mine/checkpoints/step_00000004").glob("*.safetensors"))
    data = bytearray(file.read_bytes())
    for at in range(len(data) // 2, len(data)):
        data[at] ^= 1
    file.write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("arguments", [
    ["generate", "runs/mine", "--prompt", "The", "--max-new-tokens", "4"],
    ["eval", "runs/mine", "--data", "data/mine-val", "--seq-len", "64", "--max-sequences", "8"],
    ["export", "runs/mine", "--out", "hf"]], ids=lambda arguments: arguments[0])
def test_a_run_whose_newest_checkpoint_is_damaged_stands_for_the_one_before(run, damaged,
                                                                            arguments):
    def outcome(model):
        done = run("longhaul", arguments[0], model, *arguments[2:], cwd=damaged)
        weights = [p.read_bytes() for p in sorted(damaged.glob("hf/*.safetensors"))]
        shutil.rmtree(damaged / "hf", ignore_errors=True)
        return done, (weights or re.sub(r"\(.*\)|.* s\b.*", "", done.stdout))

    found, result = outcome("runs/mine")
    assert "step_00000004 is damaged" in found.stderr and "block" in found.stderr
    assert "taking runs/mine/checkpoints/step_00000002" in found.stderr
    assert result == outcome("runs/mine/checkpoints/step_00000002")[1]
    refused(run("longhaul", arguments[0], "runs/mine/checkpoints/step_00000004", *arguments[2:],
                check=False, cwd=damaged), "step_00000004", "block")
    assert not list(damaged.glob("hf*"))


def test_a_finished_run_says_that_nothing_is_left_and_what_to_raise(run, trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    done = run("longhaul", *TRAIN, cwd=tmp_path).stdout
    assert "nothing to do: step 4 of 4 is done; raise run.steps" in done
    assert "steps 5 to 4" not in done
    # run.steps is now below the steps that are done: the run still counts as finished, not as
    # stopped.
    done = run("longhaul", *TRAIN, "--set", "run.steps=3", cwd=tmp_path).stdout
    assert "nothing to do: step 4 of 3 is done" in done and "stopped" not in done
    refused(run("longhaul", "train", "runs/mine", check=False, cwd=tmp_path),
            "runs/mine/config.toml")


def test_a_batch_larger_than_the_data_is_trained_and_said(run, root):
    (root / "run.toml").write_text(TRAINING)
    said = run("longhaul", *TRAIN, "--set", "data.train=[{path = \"data/mine-val\"}]", "--set",
               "run.steps=1", "--set", "batch.global_size=512", "--set", "batch.micro_size=64",
               cwd=root).stdout
    epochs, sequences = re.search(r"one batch is ([\d.]+) epochs: the data has (\d+) sequences and "
                                  r"batch.global_size is 512", said).groups()
    assert float(epochs) == pytest.approx(512 / int(sequences), abs=0.05)


def test_one_of_a_thing_is_singular(run, trained):
    text = run("longhaul", "inspect", "runs/mine", cwd=trained).stdout
    assert "run runs/mine: 2 checkpoints" in text and ", 1 rank," in text
    run("longhaul", "export", "runs/mine", "--out", "one", cwd=trained)
    for words in (["config", "run.toml", "--ranks", "1"], ["data", "inspect", "data/mine"],
                  ["inspect", "runs/mine"]):
        text = run("longhaul", *words, cwd=trained).stdout
        assert not re.search(r"(?<![\d,.])1 (rank|file|token|sequence|record|checkpoint|shard|tensor)s",
                             text), text


def test_watch_waits_for_a_run_that_has_not_begun(run, binary, trained, tmp_path):
    place = tmp_path / "later"
    watch = subprocess.Popen([binary("longhaul"), "watch", place, "--until-end", "--interval",
                              "0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert watch.stderr.readline().startswith(f"waiting for {place}: nothing of a run")
        shutil.copytree(trained / "runs/mine", tmp_path / "made")
        (tmp_path / "made").rename(place)
        out, _ = watch.communicate(timeout=30)
        assert watch.returncode == 0 and out.splitlines()[-1].startswith("done step 4 of 4")
    finally:
        watch.kill()
        watch.wait()


def test_watch_that_waits_ends_on_ctrl_c(binary, tmp_path):
    watch = subprocess.Popen([binary("longhaul"), "watch", tmp_path / "later"],
                             stderr=subprocess.PIPE, text=True)
    try:
        watch.stderr.readline()
        time.sleep(0.1)
        watch.send_signal(signal.SIGINT)
        assert watch.wait(timeout=20) == 0
    finally:
        watch.kill()
        watch.wait()


def test_watch_once_of_a_run_that_is_not_there_names_those_that_are(run, trained):
    refused(run("longhaul", "watch", "runs/mien", "--once", check=False, cwd=trained),
            "runs/mien is no directory", "runs/mine")
    refused(run("longhaul", "watch", "runs", "--once", check=False, cwd=trained),
            "runs holds nothing of a run", "runs/mine")


# --- the README

README = (REPOSITORY / "README.md").read_text()


def test_the_commands_of_the_readme_run_one_after_another(root, binary):
    """The commands run as they stand, with another path of the model and smaller sizes. Another
    test installs the wheel."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
    commands = "".join(text for kind, text in blocks if kind == "sh")
    commands = re.sub(r"^(make wheel|pip install) .*", "", commands, flags=re.M)
    for shown, here in (("runs/MODEL-", "runs/small-"), ("MODEL", "models/small"), ("try book.txt", "try book.txt --seconds 5"),
                        ("--holdout 1%", "--holdout 20%"),
                        ("train run.toml", "train run.toml --set run.steps=4")):
        assert shown in commands
        commands = commands.replace(shown, here)
    (root / "book.txt").write_text("".join(p.read_text() for p in sorted(root.glob("corpus/*.txt"))))
    (root / "run.toml").unlink()
    shutil.rmtree(root / "data")
    environment = dict(os.environ, PATH=f"{pathlib.Path(binary('longhaul')).parent}:{os.environ['PATH']}")
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=root, text=True,
                          capture_output=True, env=environment, timeout=240)
    assert done.returncode == 0, commands + done.stdout + done.stderr
    assert "finished step 4 of 4" in done.stdout
    assert list((root / "hf").glob("*.safetensors"))
    (output,) = (text for kind, text in blocks if not kind and "$ longhaul" in text)
    printed = [any_figures(line) for line in done.stdout.splitlines()]
    for line in output.splitlines():
        assert any_figures(line) in printed, line


def any_figures(line):
    """The line without what differs from run to run: numbers, plurals, the heights of a curve."""
    line = re.sub(r"\d[\d,.]*(?: [kMG]?B\b)?", "0", line)
    line = re.sub(r"\b0 (\w+?)s\b", r"0 \1", line)
    line = re.sub(r"\b0m 0s\b", "0 s", line)
    return re.sub(r"[▁▂▃▄▅▆▇█]+", "~", line).strip()


def test_the_readme_is_short_and_its_picture_is_there():
    assert len(README.split()) <= 600
    (picture,) = re.findall(r"!\[.*?\]\((.*?)\)", README)
    assert "</svg>" in (REPOSITORY / picture).read_text()


def test_the_page_of_features_names_every_verb():
    table = (REPOSITORY / "docs/features.md").read_text().split("\n## Verbs\n")[1]
    named = {verb.strip() for row in re.findall(r"^\| ([a-z][^|]*) \|", table, re.M)
             for verb in row.split(",")}
    assert {verb for verb in VERBS if " " not in verb and verb != "data"} <= named
    assert {verb for verb in VERBS if verb.startswith("data ")} <= named
