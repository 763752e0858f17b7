"""Nodes of a cloud: Slurm switches them on for a job, they boot late or never, and they tell what
they are."""

import subprocess
import sys
import textwrap
import time

import pytest
import slurm_cluster
from faults import LAYOUT, Supervised, sets
from machines import wait_until
from runs import curve, write_config

INSTANCE = {"sys_vendor": "Amazon EC2", "board_asset_tag": "i-0123456789abcdef0",
            "product_name": "p5.48xlarge"}
# This program stands in for EC2's metadata service on the loopback of the instance.
METADATA = textwrap.dedent("""
    import http.server, sys
    class Service(http.server.BaseHTTPRequestHandler):
        def answer(self, good, text):
            self.send_response(200 if good else 401)
            self.end_headers()
            self.wfile.write(text.encode())
        def do_PUT(self):
            self.answer(self.path == "/latest/api/token", "a-token==")
        def do_GET(self):
            self.answer(self.headers["X-aws-ec2-metadata-token"] == "a-token==" and
                        self.path == "/latest/meta-data/placement/availability-zone", "us-east-1a")
    http.server.HTTPServer(("127.0.0.1", 1338), Service).serve_forever()
    """)


@pytest.fixture(scope="module")
def whole_cluster():
    with slurm_cluster.running(4, cloud=3) as made:
        yield made


class Allocated:
    """A supervisor on n1 for a job whose nodes may not have booted. (A batch script begins only
    when all nodes have.)"""

    def __init__(self, cluster, binary, folder, nodes, spares, *values, booted=(), env=None):
        self.folder = folder
        done = cluster.call("salloc", "--no-shell", "--partition=cloud", "--exclusive", "--no-kill",
                            f"--nodes={nodes + spares}", node="n1")
        self.job = cluster.note_job(done.stderr.split("job allocation")[1].split()[0])
        for name in booted:
            cluster.power_on(name)
        cluster.wait_for_state("allocated", *booted)
        self.dir = folder / "run"
        self._output = (folder / "log").open("w")
        self._process = cluster.spawn(
            binary("longhaul"), "supervise", write_config(folder), "--nodes", nodes, "--spares",
            spares, "--ranks-per-node", 2, *sets(*LAYOUT, *values), node="n1",
            stdout=self._output, stderr=subprocess.STDOUT,
            env={"SLURM_JOB_ID": str(self.job), "SLURMD_NODENAME": "n1", **(env or {}),
                 "SLURM_JOB_NODELIST": cluster.job(self.job)["NodeList"],
                 "SLURM_PMIX_FENCE": "ring"})

    def log(self):
        return (self.folder / "log").read_text()

    def wait_for(self, words):
        wait_until(lambda: words in self.log() or self._process.poll() is not None, 60, self.log)
        assert words in self.log()

    def finish(self):
        assert self._process.wait(120) == 0, self.log()
        self._output.close()
        return nodes_of_ranks(self.log())


def nodes_of_ranks(log):
    return {word.split(":")[1] for line in log.splitlines() if line.startswith("ranks ")
            for word in line.split() if ":n" in word}


def test_a_start_waits_for_a_node_that_boots_late_and_the_log_names_the_instance(
        cluster, binary, run, folder):
    started = Allocated(cluster, binary, folder, 2, 0, env={
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1338"})
    started.wait_for("longhaul: Slurm shows n2 powering up: the start waits, at most 1800 s")
    cluster.power_on("n2", INSTANCE)
    cluster.spawn(sys.executable, "-c", METADATA, node="n2", stderr=subprocess.DEVNULL)
    assert started.finish() == {"n1", "n2"}
    assert "no node is powering up any more" in started.log()
    assert ("longhaul agent on n2: this machine is EC2 i-0123456789abcdef0, p5.48xlarge, us-east-1a"
            ) in started.log()
    run("longhaul", "train", write_config(folder), *sets(*LAYOUT, f'run.dir="{folder / "alone"}"'),
        ranks=4)
    assert curve(started.dir) == curve(folder / "alone")


def test_a_spare_takes_the_place_of_a_node_that_never_boots(cluster, binary, folder):
    started = Allocated(cluster, binary, folder, 2, 1, "resilience.node_boot_s=3",
                        booted=["n3"])
    assert started.finish() == {"n1", "n3"}
    assert "n2 did not boot within 3 s (resilience.node_boot_s): the job goes on without" in (
        started.log())
    assert cluster.job(started.job)["NodeList"] == "n[1,3]"
    assert len(curve(started.dir)) == 8
    assert not list(folder.rglob("slurm_job_*_resize.*"))


@pytest.mark.soak
def test_a_node_that_boots_three_minutes_late_costs_neither_a_requeue_nor_a_smaller_run(
        cluster, binary, folder):
    """The first part is the wait of the supervisor. In the second part Slurm keeps back the script
    of `submit`."""
    started = Allocated(cluster, binary, folder, 4, 0, booted=["n2", "n3"])
    started.wait_for("Slurm shows n4 powering up")
    time.sleep(180)
    cluster.power_on("n4")
    assert started.finish() == {"n1", "n2", "n3", "n4"}
    cluster.clear()
    batch = folder / "batch"
    batch.mkdir()
    submitted = Supervised(cluster, binary, batch, spares=0, options=["--partition", "cloud"])
    for name in ["n2", "n3"]:
        cluster.power_on(name)
    time.sleep(180)
    cluster.power_on("n4")
    submitted.finish()
    assert cluster.job(submitted.job)["Restarts"] == "0"
    assert nodes_of_ranks(submitted.log()) == {"n1", "n2", "n3", "n4"}
