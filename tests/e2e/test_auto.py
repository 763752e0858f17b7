"""With parallel.auto, `submit` and `launch` choose the layout, `config` and `plan` tell the same one,
and the run keeps it."""

import json
import pathlib
import re
import shlex
import sys

import pytest
from programs import SOURCE
from refusals import refused

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "resume"))
from runs import steps_of, write_config  # noqa: E402

MODEL = SOURCE / "tests/fixtures/configs/llama31-8b-instruct.json"
RUN = f"""[run]
dir = "runs/a"
steps = 1000
[model]
config = "{MODEL}"
[data]
seq_len = 4096
train = [{{ synthetic = 100000 }}]
[batch]
global_size = 64
[parallel]
auto = true
[optimizer]
lr = 1e-5
"""
# A machine of which every figure is known.
PROFILE = """[machine]
device = "{device}"
[peak]
bf16 = 1e14
fp32 = 1e13
memory = 1e12
[efficiency]
products = 0.8
attention = 0.4
memory = 0.9
[inside]
bytes_per_s = 1e11
[between]
bytes_per_s = 1e10
[node]
ranks = 8
device_bytes = 80e9
host_bytes = 1e12
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "run.toml").write_text(RUN)
    (tmp_path / "machine.toml").write_text(PROFILE.format(device="some GPU"))
    return tmp_path


@pytest.fixture
def longhaul(run, place):
    return lambda *words, check=True: run("longhaul", *words, cwd=place, check=check)


def sets_of(script):
    """The settings of --set, in the order of a batch script, by name; the last one counts."""
    words = shlex.split(re.search(r"\nsupervise=\((.*?)\)\n", script, re.S).group(1))
    pairs = [words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--set"]
    return dict(pairs), words


def chosen_of(longhaul, *more):
    said = longhaul("config", "run.toml", "--ranks", "16", "--hardware", "machine.toml", "--json", *more)
    return json.loads(said.stdout)["config"]


def test_submit_config_and_plan_tell_the_same_layout(longhaul, place):
    machine = ("--hardware", "machine.toml")
    done = longhaul("submit", "run.toml", "--nodes", "2", "--dry-run", *machine)
    told = re.search(r"^longhaul: (auto chose: .*)$", done.stderr, re.M).group(1)
    assert re.search(rf"; [\d.]+ s a step predicted, on 16 ranks of {place}/machine.toml$", told)
    planned = longhaul("plan", "run.toml", "--nodes", "2", *machine, "--price", "1")
    assert f"\n{told}\n" in planned.stdout
    resolved = longhaul("config", "run.toml", "--ranks", "16", *machine)
    assert f"\n# {told}\n" in resolved.stdout
    # The job runs what was told, and its resolved settings are a run file that says so.
    sets, words = sets_of(done.stdout)
    assert words[words.index("--ranks-per-node") + 1] == "8"
    (place / "resolved.toml").write_text(resolved.stdout)
    parallel = json.loads(longhaul("config", "resolved.toml", "--ranks", "16", "--json").stdout)["config"]["parallel"]
    assert parallel["auto"] and parallel["chosen"]["ranks"] == 16
    for key in ("tp", "pp", "cp", "ep", "virtual_stages", "zero"):
        assert sets[f"parallel.{key}"] == str(parallel[key])
    # No layout that fits with room to spare is faster.
    best = json.loads(longhaul("plan", "run.toml", "--nodes", "2", *machine, "--price", "1", "--search",
                               "--top", "200", "--json").stdout)["best"]
    fits = [one["seconds"] for one in best if one["left_bytes"] >= 8e9]
    assert parallel["chosen"]["step_s"] == fits[0]


def test_what_is_given_stays(longhaul):
    config = chosen_of(longhaul, "--set", "parallel.tp=2", "--set", "parallel.zero=0", "--set", "parallel.pp=4")
    assert (config["parallel"]["tp"], config["parallel"]["zero"], config["parallel"]["pp"]) == (2, 0, 4)
    assert not {"parallel.tp", "parallel.zero", "parallel.pp"} & set(config["parallel"]["chosen"]["settings"])
    searched = json.loads(longhaul("plan", "run.toml", "--nodes", "2", "--hardware", "machine.toml", "--price", "1",
                                   "--search", "--json", "--set", "parallel.tp=2").stdout)
    assert {one["settings"]["tp"] for one in searched["best"]} == {2}


def test_a_second_submit_keeps_the_layout_of_a_run_that_has_begun(longhaul, place):
    machine = ("--hardware", "machine.toml")
    first = longhaul("config", "run.toml", "--ranks", "16", *machine).stdout
    # Another layout than the best one, as a start with other figures may have chosen it.
    begun = re.sub(r'^recompute = .*$', 'recompute = "full"', first, flags=re.M)
    assert begun != first
    (place / "runs/a").mkdir(parents=True)
    (place / "runs/a/config.toml").write_text(begun)
    kept, _ = sets_of(longhaul("submit", "run.toml", "--nodes", "2", "--dry-run").stdout)
    assert kept["memory.recompute"] == '"full"'
    assert "recompute full" in longhaul("plan", "run.toml", "--nodes", "2", *machine, "--price", "1").stdout
    # Other ranks are another choice.
    fewer, _ = sets_of(longhaul("submit", "run.toml", "--nodes", "1", "--dry-run").stdout)
    assert fewer["memory.recompute"] != '"full"' and "ranks = 8" in fewer["parallel.chosen"]


@pytest.mark.parametrize("words, said", [
    (("submit", "run.toml", "--nodes", "2", "--dry-run"),
     ["run.toml:12:8: parallel.auto = true needs the machine", "--hardware NAME or FILE", "run.hardware", "dgx-h100"]),
    (("config", "run.toml", "--ranks", "16"), ["needs the machine"]),
    (("launch", "-n", "2", "run.toml"), ["needs the machine"]),
    (("submit", "run.toml", "--nodes", "2", "--dry-run", "--hardware", "trn1.32xlarge"),
     ["trn1.32xlarge is for comparison only: train does not run on trn1", "take trn2.48xlarge"]),
    (("submit", "run.toml", "--nodes", "2", "--dry-run", "--hardware", "machine.toml", "--set", "parallel.tp=3"),
     ["finds no layout for 16 ranks", "with parallel.tp as given: every layout breaks a rule", "plan --search"]),
    (("submit", "run.toml", "--nodes", "2", "--dry-run", "--hardware", "machine.toml", "--set",
      "parallel.partition=[1]"), ["parallel.partition belongs to one layout"]),
    (("train", "run.toml"), ["run.toml:12:8: parallel.auto = true and no layout is chosen yet", "longhaul submit",
                             "longhaul plan --search", "runs/a/config.toml"]),
])
def test_it_is_refused_with_what_to_add(longhaul, place, words, said):
    refused(longhaul(*words, check=False), *said)
    assert not list(place.glob("runs/a/checkpoints/step_*"))


def test_a_run_file_with_auto_is_read_without_ranks(longhaul):
    text = longhaul("config", "run.toml").stdout
    assert "auto = true\n" in text and "parallel.auto chooses a layout where --ranks are given" in text
    assert json.loads(longhaul("config", "run.toml", "--json").stdout)["batch"] == {"tokens_per_step": 64 * 4096}


def test_a_launched_run_trains_in_the_layout_that_was_chosen(run, tmp_path):
    config = write_config(tmp_path)
    text = config.read_text().replace("micro_size = 2\n", "") + "[parallel]\nauto = true\n"
    config.write_text(text)
    (tmp_path / "cpu.toml").write_text(PROFILE.format(device="cpu"))

    def launch(*words):
        return run("longhaul", "launch", *words, "run.toml", "--set", "precision.compute=fp32", cwd=tmp_path).stdout

    told = re.search(r"^longhaul: (auto chose: .*2 ranks of .*)$",
                     launch("-n", "2", "--hardware", "cpu.toml", "--set", "run.stop_after=4"), re.M).group(1)
    written = tmp_path / "run/config.toml"
    first = written.read_text()
    assert "auto = true\n" in first and "chosen = { ranks = 2, " in first
    assert told in (tmp_path / "run/log.txt").read_text()
    # The run goes on in that layout, also by hand from its own copy of the settings.
    assert told in launch("-n", "2", "--set", "run.stop_after=6")
    run("longhaul", "train", written, "--set", "run.stop_after=7", cwd=tmp_path, ranks=2)
    # On one rank it is chosen again.
    assert "on 1 rank of" in launch("-n", "1")
    assert "chosen = { ranks = 1, " in written.read_text()
    assert sorted(steps_of(tmp_path / "run")) == list(range(1, 9))
