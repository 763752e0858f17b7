"""A stand-in for srun and pyxis runs what `longhaul submit --container` writes."""

import os
import subprocess

import pytest
from programs import BIN
from pyxis_stand_in import install, may_mount, seen_of
from small_model import TRAINING

@pytest.fixture
def submitted(root, tmp_path):
    """Runs the script of `longhaul submit --container ... -- WORDS` as Slurm would, in `root`."""
    if not may_mount():
        pytest.skip("mounts are not allowed here")
    seen = tmp_path / "seen"
    stand_in = install(seen, AWS_REGION="of-the-image")
    environment = dict(os.environ, **stand_in, SLURM_JOB_ID="7")

    def call(*words, options=(), cwd=root, program=BIN / "longhaul", **more):
        script = subprocess.run(
            [program, "submit", "--dry-run", "--container", "/images/x.sqsh", *options, "--", *words],
            cwd=cwd, env=environment | more, capture_output=True, text=True, timeout=60)
        assert script.returncode == 0, script.stderr
        done = subprocess.run(["bash", "-c", script.stdout], cwd=cwd, env=environment | more, text=True,
                              capture_output=True, timeout=120)
        image, mounts, workdir = seen_of(seen)
        assert (image, workdir) == ("/images/x.sqsh", str(cwd))
        return done, mounts

    return call


def test_a_training_finds_in_its_container_all_that_its_file_names(submitted, root, tmp_path):
    # Model, data and checkpoints lie outside of the working directory. The model is laid out as in
    # a hub's cache.
    elsewhere, work = tmp_path / "elsewhere", tmp_path / "work"
    (elsewhere / "hub").mkdir(parents=True)
    work.mkdir()
    (root / "models/small").rename(elsewhere / "hub/blobs")
    (elsewhere / "hub/snapshot").mkdir()
    for file in (elsewhere / "hub/blobs").iterdir():
        (elsewhere / "hub/snapshot" / file.name).symlink_to(f"../blobs/{file.name}")
    (root / "data").rename(elsewhere / "data")
    text = TRAINING.replace('"models/small"', f'"{elsewhere}/hub/snapshot"')
    text = text.replace('"data/mine', f'"{elsewhere}/data/mine')
    (work / "run.toml").write_text(text + f"""
[checkpoint]
dir = "{elsewhere}/checkpoints"
every = 1
""" if "[checkpoint]" not in text else text)
    (elsewhere / "checkpoints").mkdir()
    done, mounts = submitted("train", "run.toml", "--set", "run.steps=2", "--set", "run.threads=1",
                             cwd=work)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{elsewhere}/checkpoints:{elsewhere}/checkpoints" in mounts
    assert not any(mount.split(":")[0] in ("/", "/tmp", str(tmp_path)) for mount in mounts)
    assert (work / "runs/mine/metrics.jsonl").read_text().count("\n") >= 2
    assert list((elsewhere / "checkpoints").glob("step_*/manifest.json"))


def test_what_is_not_named_is_not_there_and_one_more_mount_brings_it(submitted, root):
    work, tools, hidden = root / "work", root / "tools", root / "hidden"
    for folder in (work, tools, hidden):
        folder.mkdir()
    look = tools / "look"
    look.write_text(f"#!/bin/bash\n[ -e {hidden} ] && echo there || echo absent\n")
    look.chmod(0o755)
    options = ["--container-program", look, "--container-mount", tools]
    assert submitted("verify", options=options, cwd=work)[0].stdout.endswith("absent\n")
    more = [*options, "--container-mount", hidden]
    assert submitted("verify", options=more, cwd=work)[0].stdout.endswith("there\n")


def test_credentials_of_stores_are_there_to_be_read_where_addresses_are_named(submitted, root):
    work, home, tools = root / "work", root / "home", root / "tools"
    for folder in (work, home / ".aws", tools):
        folder.mkdir(parents=True)
    (home / ".aws/credentials").write_text("keys")
    (root / "authorities.pem").write_text("authorities")
    look = tools / "look"
    look.write_text("""#!/bin/bash
cat "$HOME/.aws/credentials" "$AWS_CA_BUNDLE" || echo absent
echo more 2>/dev/null >> "$HOME/.aws/credentials" || echo " $AWS_REGION"
""")
    look.chmod(0o755)
    options = ["--container-program", look, "--container-mount", tools]
    variables = {"HOME": str(home), "AWS_CA_BUNDLE": str(root / "authorities.pem"),
                 "AWS_REGION": "of-the-job"}
    done, mounts = submitted("verify", "s3://corpus/store", options=options, cwd=work, **variables)
    assert done.stdout.endswith("keysauthorities of-the-job\n"), done.stdout + done.stderr
    assert f"{home}/.aws:{home}/.aws:ro" in mounts
    assert "of-the-job" not in "".join(mounts)
    done, mounts = submitted("verify", "store", options=options, cwd=work, **variables)
    assert "absent" in done.stdout and not any(".aws" in mount for mount in mounts)


def test_a_link_in_the_working_directory_leads_where_it_leads_outside(submitted, root):
    work = root / "work"
    work.mkdir()
    (work / "model").symlink_to(root / "models/small")
    done, mounts = submitted("inspect", "model", cwd=work)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{root}/models/small:{root}/models/small" in mounts


def test_the_images_own_program_is_taken_where_it_is_named(submitted, root):
    done, mounts = submitted("verify", "data/mine", options=["--container-program", "/bin/echo"])
    assert done.returncode == 0 and "verify data/mine" in done.stdout, done.stderr
    assert str(BIN.parent) not in "".join(mounts)


def test_a_path_that_pyxis_cannot_write_is_refused_before_anything_is_submitted(root):
    bad = root / "a,b"
    bad.mkdir()
    (bad / "run.toml").write_text(TRAINING)
    done = subprocess.run([BIN / "longhaul", "submit", "--dry-run", "--container", "x", "--", "verify",
                           "data"], cwd=bad, capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and "commas" in done.stderr, done.stderr
