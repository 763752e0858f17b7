"""docs/migrating.md names only keys and verbs that exist."""

import json
import pathlib
import re

import pytest

TEXT = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "migrating.md").read_text()
CODE = re.findall(r"`([^`\n]+)`", TEXT)
FILES = re.compile(r"\.(json|jsonl|txt|toml|md|pt|py|sh|yaml)$")
KEY = re.compile(r"([a-z]+\.[a-z_]+)(?: = (.+))?")


@pytest.fixture(scope="module")
def reference(run):
    return {item["key"]: item for item in json.loads(run("longhaul", "config", "--json").stdout)}


def named_keys():
    """What the page writes as `section.key` or `section.key = value`: key -> values."""
    found = {}
    for code in CODE:
        match = KEY.fullmatch(code)
        if match and not FILES.search(match[1]):
            found.setdefault(match[1], set()).add(match[2])
    return found


def section(title):
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_key_that_it_names_exists(reference):
    keys = named_keys()
    assert len(keys) > 50
    assert not keys.keys() - reference.keys()


def test_every_section_that_it_names_exists(reference):
    sections = {code[1:-1] for code in CODE if re.fullmatch(r"\[[a-z]+\]", code)}
    assert "precision" in sections
    assert not sections - {key.split(".")[0] for key in reference}


def test_values_that_it_gives_are_of_the_keys_type(reference):
    """Values that the page gives have the type of their key. A quoted word must be one of an
    enumeration's names where the reference lists them."""
    checked = 0
    for key, values in named_keys().items():
        choices = re.findall(r'"([^"]+)"', reference[key]["type"])
        for value in values - {None}:
            if choices and re.fullmatch(r'"[^"]+"', value):
                assert value.strip('"') in choices, f"{key} = {value}"
                checked += 1
    assert checked >= 5


def test_it_lists_exactly_the_keys_that_are_refused(reference):
    listed = {KEY.fullmatch(code)[1]
              for row in section("What is not there yet").splitlines() if row.startswith("|")
              for code in re.findall(r"`([^`]+)`", row.split("|")[1])}
    refused = {key for key, item in reference.items() if item["available"] != "yes"}
    assert listed == refused


def test_every_verb_that_it_names_is_there(run):
    named = {match[1] for code in CODE if (match := re.match(r"(?:.* )?longhaul ([a-z]+)", code))}
    there = set(re.findall(r"^  ([a-z]+) ", run("longhaul", "--help").stdout, re.M))
    assert {"train", "config", "export", "data", "rehearse"} <= named <= there


# --- import --flags

NXD = ("torchrun --nproc_per_node 8 --nnodes 2 run_llama_nxd.py --training_dir /d --training_config /c "
       "--lr 1e-4 --warmup_steps 5 --min_lr 0 --constant_steps 0 --max_steps 50 --train_batch_size 64 "
       "--num_microbatches 16 --use_zero1_optimizer 1 --use_selective_checkpoint 1")


def flags(run, *arguments, **options):
    return run("longhaul", "import", "--flags", *arguments, **options)


def test_a_command_line_becomes_a_run_file_that_config_takes(run, tmp_path):
    result = flags(run, NXD + " --qkv_linear 1 --lrr 3")
    assert "lr = 0.0001                     # --lr" in result.stdout
    assert "global_size = 128" in result.stdout and "(16 ranks / (tp 8 * pp 1 * cp 1))" in result.stdout
    assert "#   --qkv_linear 1: several ranks hold the same key head" in result.stdout
    assert "longhaul: warning: unknown setting, left out: --lrr 3 (did you mean lr?)" in result.stderr
    assert result.stderr.endswith(
        "11 settings carried over, 1 without a key here, 1 unknown, 0 to be filled in\n")
    (tmp_path / "run.toml").write_text(result.stdout)
    config = run("longhaul", "config", "run.toml", "--ranks", "16", cwd=tmp_path)
    assert "accumulation" in config.stdout


def test_a_file_is_written_and_none_is_replaced(run, tmp_path):
    (tmp_path / "a.yml").write_text("base_model: /m\nmicro_batch_size: 1\nsequence_len: 128\n"
                                    "learning_rate: 1e-5\nwarmup_steps: 3\nload_in_8bit: true\n")
    arguments = ("a.yml", "--ranks", "4", "--out", "run.toml")
    result = flags(run, *arguments, cwd=tmp_path)
    assert result.stdout == ""
    assert "CAUTION load_in_8bit = true: the base is not quantized here" in result.stderr
    assert "run.toml: 5 settings carried over" in result.stderr
    text = (tmp_path / "run.toml").read_text()
    assert "global_size = 4 " in text and "FILL IN" in text
    again = flags(run, *arguments, cwd=tmp_path, check=False)
    assert again.returncode == 78 and "nothing is overwritten" in again.stderr
    assert (tmp_path / "run.toml").read_text() == text


def test_a_link_to_nothing_is_not_written_through_and_directories_are_made(run, tmp_path):
    (tmp_path / "a.yml").write_text("base_model: /m\nmicro_batch_size: 1\nsequence_len: 128\n"
                                    "learning_rate: 1e-5\nmax_steps: 3\n")
    (tmp_path / "link.toml").symlink_to("target.toml")
    arguments = ("a.yml", "--ranks", "4", "--out")
    linked = flags(run, *arguments, "link.toml", cwd=tmp_path, check=False)
    assert linked.returncode == 78 and "link.toml is there already" in linked.stderr
    assert not (tmp_path / "target.toml").exists()
    flags(run, *arguments, "runs/new/run.toml", cwd=tmp_path)
    assert (tmp_path / "runs/new/run.toml").is_file()


def test_a_file_that_train_would_refuse_is_printed_and_not_written(run, tmp_path):
    (tmp_path / "a.yml").write_text("base_model: /m\nmicro_batch_size: 1\nsequence_len: 128\n"
                                    "learning_rate: -1e-5\nmax_steps: 3\n")
    arguments = ("a.yml", "--ranks", "4", "--out", "run.toml")
    result = flags(run, *arguments, cwd=tmp_path, check=False)
    assert result.returncode == 78 and "run.toml was not written" in result.stderr
    assert "lr = -1e-0" in result.stdout and not (tmp_path / "run.toml").exists()
    mended = (tmp_path / "a.yml").read_text().replace("-1e-5", "1e-5", 1)
    (tmp_path / "a.yml").write_text(mended)
    flags(run, *arguments, cwd=tmp_path)
    assert (tmp_path / "run.toml").is_file()


@pytest.mark.parametrize("arguments,words", [
    (("--flags", NXD, "--config", "c"), "--config excludes --flags"),
    (("--flags", NXD, "m.pt"), "source excludes --flags"),
    (("m.pt", "--out", "hf", "--ranks", "2"), "--ranks requires --flags"),
    (("m.pt",), "--out is required"),
    ((), "source is required"),
    (("--flags", ""), "is empty"),
    (("--flags", "missing.toml"), "missing.toml: no such file"),
    (("--flags", "srun bash run_llama3_70B_tp_pp.sh"), "is a shell script"),
    (("--flags", "run.py 'open"), "a quote (') is opened and never closed"),
    (("--flags", NXD + " --seq_len 33"), "`train` would refuse this file"),
])
def test_wrong_uses_of_it_are_refused(run, tmp_path, arguments, words):
    result = run("longhaul", "import", *arguments, cwd=tmp_path, check=False)
    assert result.returncode == 78
    assert words in result.stderr


def test_a_file_of_torchtitan_given_to_config_names_it(run, tmp_path):
    (tmp_path / "llama.toml").write_text("[job]\ndump_folder = 'x'\n")
    result = run("longhaul", "config", "llama.toml", cwd=tmp_path, check=False)
    assert "llama.toml:1:2: unknown section [job], which torchtitan's files have" in result.stderr
    assert "longhaul import --flags FILE" in result.stderr
