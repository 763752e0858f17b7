"""longhaul submit on a real cluster."""

import re
import shutil

import pyxis_stand_in
from faults import PACE, sets
from machines import environment_of, kill_process, wait_until
from runs import curve, write_config
from test_slurm import files_of, write_corpus


def submit(cluster, binary, folder, *arguments, **options):
    done = cluster.call(binary("longhaul"), "submit", *arguments, cwd=folder, **options)
    return cluster.note_job(re.match(r"job (\d+): ", done.stdout)[1])


def test_verbs_follow_each_other_by_dependency(cluster, binary, run, folder):
    work = folder / "my work"
    work.mkdir()
    write_corpus(work)
    first = submit(cluster, binary, work, "--name", "words", "--", "data", "train-tokenizer",
                   "part-00.jsonl", "--out", "tokenizer", "--vocab-size", 400)
    build = ["data", "build", "*.jsonl", "--tokenizer", "tokenizer", "--part-size", "64KB",
             "--threads", 1]
    second = submit(cluster, binary, work, "--nodes", 2, "--ranks-per-node", 2, "--after", first,
                    "--", *build, "--out", "shared")
    assert cluster.wait_for_job(second, ["COMPLETED", "FAILED", "CANCELLED"],
                                60)["JobState"] == "COMPLETED"
    assert cluster.job_state(first) == "COMPLETED"
    log = (work / f"data-build-{second}.log").read_text()
    assert "start 1" in log and "documents" in log
    run("longhaul", *build, "--out", "alone", cwd=work)
    assert files_of(work / "shared") == files_of(work / "alone")

    # A job that waits for a failed job is removed, so that it does not wait for ever.
    wrong = submit(cluster, binary, work, "--", "verify", "nothing-here")
    never = submit(cluster, binary, work, "--after", wrong, "--", "verify", "shared")
    assert cluster.wait_for_job(wrong, ["FAILED", "COMPLETED"], 30)["ExitCode"] == "78:0"
    cluster.wait_for_job(never, "CANCELLED", 30)


def test_a_verb_that_is_stopped_by_the_limit_goes_on_from_the_queue(cluster, binary, run, folder):
    config = write_config(folder)
    long = ["--set", "run.steps=3000", "--set", "checkpoint.every=0"]
    job = submit(cluster, binary, folder, "--nodes", 2, "--ranks-per-node", 2, "--name", "cut",
                 "--", "train", config, *long)
    cluster.wait_for_job(job, "RUNNING", 30)
    metrics = folder / "run" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 3, 60,
               "steps")
    # Slurm sends this signal before the time limit.
    cluster.call("scancel", "--batch", "--signal=USR1", job)
    wait_until(lambda: cluster.job(job).get("Restarts") == "1", 60, "a requeue")
    cluster.wait_for_job(job, "RUNNING", 60)
    done = len(curve(folder / "run"))
    wait_until(lambda: len(curve(folder / "run")) > done + 3, 60, "more steps")
    log = (folder / f"cut-{job}.log").read_text()
    assert "requeue: the command asks for it" in log and "start 2" in log
    # A cancelled job does not come back.
    cluster.call("scancel", job)
    assert cluster.wait_for_job(job, ["CANCELLED", "COMPLETED", "PENDING"],
                                40)["JobState"] == "CANCELLED"
    assert "not requeued" in (folder / f"cut-{job}.log").read_text()


def test_a_supervised_run_in_a_container_has_its_paths_and_variables_in_every_start(
        cluster, binary, folder):
    config = write_config(folder)
    work, golden = folder / "work", folder / "golden.txt"
    work.mkdir()
    golden.write_text("1.0\n" * 3)
    given = {"NCCL_DEBUG": "of the job", "MY_TOKEN": "hidden", "OTHER": "of the job"}
    image = dict.fromkeys(given, "of the image")
    stand_in = pyxis_stand_in.install(folder / "seen", shutil.which("srun"), **image)
    environment = cluster.environment() | stand_in | given
    # Slurm hands on only these variables, not those that the supervisor sets.
    environment["SBATCH_EXPORT"] = ",".join(environment)
    job = submit(
        cluster, binary, work, config, "--nodes", 2, "--ranks-per-node", 2, "--container",
        "/images/x.sqsh",
        *sets("run.steps=16", f'checkpoint.dir="{folder}/saved"', 'run.pass_environment=["MY_*"]',
              f'run.golden={{ file = "{golden}", tolerance = 1e6 }}', PACE), env=environment)

    def log():
        return (folder / "run" / f"slurm-{job}.log").read_text(errors="replace")

    def ranks_after(step):
        metrics = folder / "run" / "metrics.jsonl"
        wait_until(lambda: metrics.exists() and len(curve(folder / "run")) >= step, 60, log)
        return wait_until(lambda: len(found := cluster.workers()) == 4 and found, 30, log)

    def check(ranks):
        for _, pid in ranks.values():
            found = {name: environment_of(pid).get(name) for name in given}
            assert found == given | {"OTHER": "of the image"}

    ranks = ranks_after(5)
    check(ranks)
    kill_process(ranks[3][1])
    check(ranks_after(8))
    assert cluster.wait_for_job(job, ["COMPLETED", "FAILED", "CANCELLED"],
                                60)["JobState"] == "COMPLETED", log()
    assert len(curve(folder / "run")) == 16 and list((folder / "saved").glob("step_*"))
    _, mounts, _ = pyxis_stand_in.seen_of(folder / "seen")
    assert f"{golden}:{golden}" in mounts and f"{folder}/saved:{folder}/saved" in mounts
    assert not any(mount.split(":")[0] in ("/", "/tmp", str(folder)) for mount in mounts)
    assert re.search("every rank gets the variables .*MY_TOKEN, NCCL_DEBUG", log())
    assert "hidden" not in log() + (folder / "run" / "submit.sbatch").read_text()
