"""What `longhaul submit --container` writes, run by stand-ins for srun and pyxis: the step sees a root of
its own, which has the system's programs and libraries, as an image has, and of the machine only what is
mounted into it."""

import os
import subprocess

import pytest
from programs import BIN
from small_model import TRAINING

# --container-image and its mounts, as pyxis does them: a new root, the mounts at their places, the
# working directory, then the command. The system's directories stand for those of an image.
SRUN = r"""#!/bin/bash
set -eu
image= mounts= workdir=/
while [ $# -gt 0 ]; do
  case $1 in
    --container-image=*) image=${1#*=} ;;
    --container-mounts=*) mounts=${1#*=} ;;
    --container-workdir=*) workdir=${1#*=} ;;
    --*) ;;
    *) break ;;
  esac
  shift
done
printf '%s\n' "$image" "$mounts" "$workdir" > "$SEEN/container"
export MOUNTS=$mounts WORKDIR=$workdir ROOT=$SEEN/root
exec unshare -m bash -eu -c '
  mkdir -p "$ROOT"
  mount -t tmpfs tmpfs "$ROOT"
  for system in bin dev etc lib lib64 proc sbin sys usr; do
    [ -e "/$system" ] || continue
    mkdir -p "$ROOT/$system"
    mount --rbind "/$system" "$ROOT/$system"
  done
  mkdir -p "$ROOT/tmp"
  IFS=,
  for pair in $MOUNTS; do
    from=${pair%%:*} to=$ROOT${pair#*:}
    if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "${to%/*}"; touch "$to"; fi
    mount --rbind "$from" "$to"
  done
  exec chroot "$ROOT" /bin/bash -eu -c "cd \"\$WORKDIR\"; exec \"\$@\"" container "$@"
' srun "$@"
"""


def may_mount():
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@pytest.fixture
def submitted(root, tmp_path):
    """Runs the script of `longhaul submit --container ... -- WORDS` as Slurm would, in `root`."""
    if not may_mount():
        pytest.skip("mounts are not allowed here")
    seen = tmp_path / "seen"
    seen.mkdir()
    (seen / "srun").write_text(SRUN)
    (seen / "srun").chmod(0o755)
    environment = dict(os.environ, PATH=f"{seen}:{os.environ['PATH']}", SEEN=str(seen),
                       SLURM_JOB_ID="7")

    def call(*words, options=(), cwd=root, program=BIN / "longhaul"):
        script = subprocess.run(
            [program, "submit", "--dry-run", "--container", "/images/x.sqsh", *options, "--", *words],
            cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)
        assert script.returncode == 0, script.stderr
        done = subprocess.run(["bash", "-c", script.stdout], cwd=cwd, env=environment, text=True,
                              capture_output=True, timeout=120)
        image, mounts, workdir = (seen / "container").read_text().splitlines()
        assert (image, workdir) == ("/images/x.sqsh", str(cwd))
        return done, mounts.split(",")

    return call


def test_a_training_finds_in_its_container_all_that_its_file_names(submitted, root, tmp_path):
    # Model, data and checkpoints elsewhere than the working directory, the model as a hub's cache has it.
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
