"""`import --flags` reads launch scripts of the same form as published ones, and finds the values
that bash computes. Stand-ins replace the programs that the scripts call."""

import pathlib
import re
import shutil
import subprocess
import tomllib

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "fixtures/other_systems/scripts"
SILENT = "curl grep mkdir nslookup pip3 rm srun sudo tee torchrun".split()
NAME_A_MACHINE = "awk hostname scontrol".split()
# Values that no script has, so a person has to give them.
GIVEN = {"batch.global_size": "1024", "checkpoint.dir": "saved", "data.train": '[{ path = "d" }]',
         "init.weights": "w", "model.config": "m"}


def command_that_ran(script, tmp_path, environment):
    """The line that starts the training, as `bash -x` shows it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in SILENT + NAME_A_MACHINE:
        answer = "echo machine-1" if name in NAME_A_MACHINE else ""
        (programs / name).write_text(f"#!/bin/sh\n{answer}\n")
        (programs / name).chmod(0o755)
    (programs / "dirname").symlink_to(shutil.which("dirname"))
    traced = subprocess.run([shutil.which("bash"), "-x", str(script)], cwd=tmp_path, text=True,
                            capture_output=True, env={"PATH": str(programs), **environment},
                            check=True)
    lines = re.findall(r"^\++ ((?:srun|torchrun) .*)$", traced.stderr, re.M)
    assert len(lines) == 1, traced.stderr
    return lines[0]


def values_of(text):
    return {f"{section}.{key}": value for section, keys in tomllib.loads(text).items()
            for key, value in keys.items()}


@pytest.mark.parametrize("script,ranks,environment,steps,to_fill", [
    ("pipeline_70b.sh", 512, {"SLURM_NTASKS": "16"}, 30000, {"init.weights"}),
    ("zero1_8b.sh", None, {}, 10000, {"batch.global_size", "data.train"}),
    ("zero1_8b.sh", 1024, {"SLURM_NTASKS": "32"}, 10000, {"data.train"}),
    ("zero1_7b_continued.sh", None, {}, 31800,
     {"batch.global_size", "data.train", "init.weights"}),
    ("zero1_7b_continued.sh", 512, {"SLURM_NTASKS": "16"}, 31800, {"data.train", "init.weights"}),
    ("bert_large.sh", None, {}, 28125, {"batch.global_size", "data.train"}),
    ("bert_large.sh", 512, {"SLURM_NTASKS": "16"}, 28125, {"data.train"}),
    ("bert_large_phase2.sh", None, {}, 1563, {"batch.global_size", "data.train", "init.weights"}),
    ("bert_large_phase2.sh", 512, {"SLURM_NTASKS": "16"}, 1563,
     {"batch.global_size", "data.train", "init.weights"}),
    ("smp_container.sh", None, {"SLURM_JOB_NUM_NODES": "8"}, 5000,
     {"checkpoint.dir", "model.config"}),
])
def test_a_script_gives_the_values_that_it_computes(run, tmp_path, script, ranks, environment,
                                                    steps, to_fill):
    shutil.copy(SCRIPTS / script, tmp_path / script)
    said = ["--ranks", ranks] if ranks else []
    made = run("longhaul", "import", "--flags", script, *said, "--out", "run.toml", cwd=tmp_path)
    assert f"{len(to_fill)} to be filled in" in made.stderr
    text = (tmp_path / "run.toml").read_text()
    values = values_of(text)
    assert {key for key, value in values.items() if "FILL IN" in str(value)} == to_fill
    assert values["run.steps"] == steps
    if script.startswith("bert"):
        # BERT's scripts name their model in code only, so the import writes the model as well.
        model = pathlib.Path(values["model.config"])
        assert model.name == "bert-large-uncased" and (model / "config.json").is_file()

    ran = command_that_ran(tmp_path / script, tmp_path, {"SLURM_NODEID": "0", **environment})
    same = run("longhaul", "import", "--flags", ran, *said, cwd=tmp_path)
    expected = values_of(same.stdout)
    # If the directory of event files has the job's name in it, the import only tells of it.
    told = {"log.tensorboard_dir"} if re.search(r"^#   --tb_dir .*\$SLURM_JOB_ID", text, re.M) else set()
    assert expected.keys() - told == values.keys()
    # A directory that depends on the machines gets a name of longhaul's choice.
    open_keys = to_fill | {key for key in values if values[key] == "runs/imported"}
    assert {key: value for key, value in values.items() if key not in open_keys} == \
        {key: value for key, value in expected.items()
         if key not in open_keys | told}

    sets = [word for key in sorted(to_fill | {"model.config"}) for word in ("--set", f"{key}={GIVEN[key]}")]
    world = re.search(r"# (\d+) ranks", same.stdout)[1]
    shown = run("longhaul", "config", "run.toml", "--ranks", world, *sets, cwd=tmp_path)
    assert "accumulation" in shown.stdout


def test_a_value_that_the_machines_decide_is_offered_with_its_condition(run, tmp_path):
    shutil.copy(SCRIPTS / "pipeline_70b.sh", tmp_path)
    made = run("longhaul", "import", "--flags", "pipeline_70b.sh", cwd=tmp_path)
    values = values_of(made.stdout)
    assert {key for key, value in values.items() if "FILL IN" in str(value)} == \
        {"batch.global_size", "init.weights"}
    assert ("MACHINES is $SLURM_NTASKS where [ -v SLURM_NTASKS ], 1 otherwise"
            in values["batch.global_size"])
    assert values["batch.micro_size"] == 1
    assert re.search(r"^steps = 30000 +# --max_steps; NEURON_EXTRACT_GRAPHS_ONLY, PERF_TEST count as "
                     r"unset$", made.stdout, re.M)
    assert "PERF_TEST, PP: the script never sets them, so they count as unset" in made.stderr
