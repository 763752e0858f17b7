"""longhaul submit on a real cluster."""

import re

from machines import wait_until
from runs import curve, write_config
from test_slurm import files_of, write_corpus


def submit(cluster, binary, folder, *arguments):
    done = cluster.call(binary("longhaul"), "submit", *arguments, cwd=folder)
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

    # What waits for a job that failed is removed and does not wait for ever.
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
    # The signal that Slurm sends before the time limit.
    cluster.call("scancel", "--batch", "--signal=USR1", job)
    wait_until(lambda: cluster.job(job).get("Restarts") == "1", 60, "a requeue")
    cluster.wait_for_job(job, "RUNNING", 60)
    done = len(curve(folder / "run"))
    wait_until(lambda: len(curve(folder / "run")) > done + 3, 60, "more steps")
    log = (folder / f"cut-{job}.log").read_text()
    assert "requeue: the command asks for it" in log and "start 2" in log
    # Cancelled is cancelled.
    cluster.call("scancel", job)
    assert cluster.wait_for_job(job, ["CANCELLED", "COMPLETED", "PENDING"],
                                40)["JobState"] == "CANCELLED"
    assert "not requeued" in (folder / f"cut-{job}.log").read_text()
