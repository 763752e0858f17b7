"""No word of a command line repeats a secret, and an address stands only where it is read or written
to: told at once, without a store. The settings that pages show are taken."""

import re

import pytest
from outcomes import files, refused
from programs import SOURCE, later
from runs import write_config

SECRET = "SECRETX"
WITH_SECRETS = [f"s3://AKIA:{SECRET}@corpus/x", f"s3://corpus/x?access_key={SECRET}"]
NO_USE = "it is the address of an object, which has no use here"
TEXTS = {"--prompt", "--field", "--set", "--special-tokens", "--mpirun", "--delimiter", "--slurm",
         "--name", "--flags"}
BY_ADDRESS = {
    "compare": {"first", "second"}, "data build": {"inputs", "--tokenizer", "--out"},
    "data build-bert": {"inputs", "--tokenizer", "--out"}, "data export": {"store"},
    "data inspect": {"path"}, "data split": {"store"}, "data train-tokenizer": {"inputs"},
    "eval": {"model", "--data", "--tasks"}, "export": {"source", "--out"}, "generate": {"model", "--tokenizer"},
    "import": {"source", "--config", "--out"}, "inspect": {"path"}, "try": {"inputs"},
    "verify": {"dir"}, "submit": {"config"}}


@pytest.fixture(scope="session")
def verbs(run):
    """The help of each verb by its name, "data build" among them."""
    found = {}

    def look(name):
        text = run("longhaul", *name.split(), "--help").stdout
        under = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.M)
        if name and not under:
            found[name] = text
        for line in re.findall(r"^  (\S+)", under.group(1), re.M) if under else ():
            look(f"{name} {line}".strip())

    look("")
    assert len(found) > 25 and {"train", "data split", "recipe show"} <= set(found)
    return found


def said_of(run, *words, **options):
    result = run("longhaul", *words, check=False, **options)
    assert SECRET not in result.stdout + result.stderr, (words, result.stderr)
    refused(result, "holds no credentials")


def test_no_verb_repeats_a_secret_wherever_it_stands(run, verbs, tmp_path):
    for number, name in enumerate([*verbs, "agent", "none", "data none"]):
        secret = WITH_SECRETS[number % len(WITH_SECRETS)]
        for words in (["x", secret], ["--out", secret], [f"--unknown={secret}"],
                      ["run.toml", "--set", f'data.train=["{secret}"]']):
            said_of(run, *name.split(), *words, cwd=tmp_path)
    for secret in WITH_SECRETS:
        for words in ([secret], ["submit", "--dry-run", "--", "inspect", secret],
                      ["import", "--flags", f"torchrun train.py --data {secret} --lr 1"]):
            said_of(run, *words, cwd=tmp_path)
    assert files(tmp_path) == {}


@pytest.mark.parametrize("key", ["optimizer.kind", *later(
    "data.train", "model.override", "run.golden", "batch.micro_size", "run.none")])
def test_no_setting_of_a_file_repeats_a_secret(run, tmp_path, key):
    section, name = key.split(".")
    config = tmp_path / "run.toml"
    for secret in WITH_SECRETS:
        for value in (f'"{secret}"', f'["{secret}"]', f'{{ a = "{secret}" }}', secret):
            config.write_text(f"[{section}]\n{name} = {value}\n")
            for words in (["config", config], ["launch", config], ["doctor", config],
                          ["submit", config, "--nodes", "1", "--dry-run"]):
                said_of(run, *words, cwd=tmp_path)


def arguments_that_take_text(text):
    """(name, whether it is an option) of the help of a verb."""
    places = re.findall(r"^  (?:-\w,)?(--[\w-]+|[a-z]\w*) TEXT(:?)", text, re.M)
    return [name for name, choice in places if not choice]


def test_an_address_stands_only_where_it_is_read_or_written_to(run, verbs, tmp_path):
    """The refusal is the same where a directory named s3: exists."""
    write_config(tmp_path)
    (tmp_path / "s3:/corpus").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    seen = set()
    for verb, text in verbs.items():
        for name in arguments_that_take_text(text):
            if name in TEXTS or name in BY_ADDRESS.get(verb, ()):
                continue
            place = [f"{name}=s3://corpus/T"] if name.startswith("--") else ["s3://corpus/T"]
            if verb == "new" and name == "data":
                place = ["model", *place]
            if name == "--container-program":  # which says that it is not absolute
                continue
            refused(run("longhaul", *verb.split(), *place, check=False, cwd=tmp_path), NO_USE)
            seen.add((verb, name))
    assert sorted(tmp_path.rglob("*")) == before
    assert {("data split", "--out-train"), ("data split", "--out-validation"), ("bench", "--dir"),
            ("bench", "--hardware"), ("report", "--against"), ("report", "--out"), ("watch", "run"),
            ("submit", "--container"), ("new", "data"), ("recipe show", "--out"), ("drill", "--dir"),
            ("doctor", "--dir"), ("data export", "--out"), ("train", "config")} <= seen


@pytest.mark.parametrize("words", [
    ["data", "split", "M", "--share", "10%", "--out-train", "s3://corpus/T", "--out-validation", "V"],
    ["bench", "--dir=s3://corpus/T"], ["report", "R", "--out", "s3://corpus/T"]])
def test_submit_refuses_an_output_that_its_verb_would_refuse(run, tmp_path, words):
    refused(run("longhaul", "submit", "--dry-run", "--", *words, check=False, cwd=tmp_path), NO_USE)
    assert files(tmp_path) == {}


def test_submit_takes_what_its_verb_takes(run, tmp_path):
    words = ["export", "s3://corpus/run", "--out", "s3://corpus/hf"]
    script = run("longhaul", "submit", "--dry-run", "--", *words, cwd=tmp_path).stdout
    assert "s3://corpus/hf" in script


def test_submit_refuses_a_configuration_by_address(run, tmp_path):
    refused(run("longhaul", "submit", "s3://corpus/run.toml", "--nodes", "1", "--dry-run", check=False,
                cwd=tmp_path), NO_USE)


def test_a_dollar_is_part_of_a_key(run, tmp_path):
    env = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9", "LONGHAUL_OBJECTS_PATIENCE": "1",
           "AWS_NO_SIGN_REQUEST": "1", "HOME": str(tmp_path)}
    result = run("longhaul", "inspect", "s3://corpus/pay$HOME.jsonl", check=False, env=env,
                 cwd=tmp_path)
    assert "only a shell" not in result.stderr and "s3://corpus/pay$HOME.jsonl" in result.stderr


@pytest.mark.parametrize("setting, refused_as", [
    ('data.train=[{ path = "s3://corpus/st*" }]', "data.train: s3://corpus/st*"),
    ('init.weights="s3://corpus/mod?l"', "init.weights: s3://corpus/mod?l"),
    ('data.train=[{ path = "s3://corpus/*.jsonl" }]', None)])
def test_config_refuses_a_pattern_that_training_would_refuse(run, tmp_path, setting, refused_as):
    config = write_config(tmp_path)
    for words in (["config", config], ["config", config, "--ranks", "1"]):
        result = run("longhaul", *words, "--set", setting, check=False, cwd=tmp_path)
        if refused_as:
            refused(result, refused_as, "patterns of addresses")
        else:
            assert result.returncode == 0, result.stderr


def test_the_sources_of_data_that_pages_show_are_taken(run, tmp_path):
    config, shown = write_config(tmp_path), 0
    pages = [*(SOURCE / "docs").glob("*.md"), SOURCE / "README.md"]
    for page in pages:
        for block in re.findall(r"```toml\n(.*?)```", page.read_text(), re.S):
            for key, value in re.findall(r"^(train|validation) = (\[.*?\])[ \t]*(?:#[^\n]*)?$", block,
                                         re.M | re.S):
                result = run("longhaul", "config", config, "--set", f"data.{key}={value}",
                             check=False, cwd=tmp_path)
                assert result.returncode == 0, (page.name, value, result.stderr)
                shown += 1
    assert shown >= 5
