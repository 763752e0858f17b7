"""`longhaul launch --hosts` on the cluster's machines without Slurm: real ssh and mpirun."""

import json
import pathlib
import shutil
import signal
import subprocess

import pytest
from faults import LAYOUT, reference, sets
from machines import arguments_of, environment_of, kill_process, wait_until
from runs import curve, write_config

STEPS = 25
HOSTS = ["n1", "n2", "n3", "n4", "n5"]  # the last is a spare
VARIABLES = {"LD_LIBRARY_PATH": "/nowhere/of the run", "NCCL_DEBUG": "VERSION", "AWS_SECRET_ACCESS_KEY": "unspoken;A=1",
             "MY_TOKEN": "unspoken \"too\" $HOME\n-x"}

@pytest.fixture
def reachable(cluster, tmp_path):
    """Lets the machines reach each other by ssh, without any file of the real home."""
    if shutil.which("dropbear") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh server here (dropbear-bin, openssh-client)")
    home = cluster.shared / "ssh-home"
    ssh = home / ".ssh"
    ssh.mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh / "id_ed25519"],
                   check=True, timeout=30)
    shutil.copy(ssh / "id_ed25519.pub", ssh / "authorized_keys")
    host_key = home / "host_key"
    made = subprocess.run(["dropbearkey", "-t", "ed25519", "-f", host_key], check=True,
                          capture_output=True, text=True, timeout=30)
    public = next(line for line in made.stdout.splitlines() if line.startswith("ssh-"))
    (ssh / "known_hosts").write_text(f"{','.join(HOSTS)} {' '.join(public.split()[:2])}\n")
    root = pathlib.Path("~").expanduser()
    for name in HOSTS:
        cluster.call("mount", "--bind", home, root, node=name)
        cluster.call("dropbear", "-r", host_key, "-s", "-p", "22", "-P", "/tmp/dropbear.pid",
                     node=name)
    yield cluster
    for name in HOSTS:
        if cluster.nodes[name].on:
            cluster.power_off(name)
    shutil.rmtree(home, ignore_errors=True)

class Launched:
    def __init__(self, cluster, binary, folder):
        self.cluster = cluster
        self.dir = folder / "run"
        self.log = folder / "launch.log"
        config = write_config(folder)
        with self.log.open("wb") as out:
            self.process = cluster.spawn(
                binary("longhaul"), "launch", "--hosts", ",".join(HOSTS), "-n", 8,
                "--ranks-per-node", 2, config, *sets(
                    *LAYOUT, f"run.steps={STEPS}", 'run.pass_environment=["MY_*"]',
                    f"""resilience.health_command='printf %s "$MY_TOKEN" > {folder}/$(hostname)'"""),
                node="n1", cwd=folder, stdout=out, stderr=subprocess.STDOUT,
                env={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                     **VARIABLES})

    def text(self):
        return self.log.read_text(errors="replace")[-4000:]

    def done(self):
        return len(curve(self.dir)) if (self.dir / "metrics.jsonl").exists() else 0

    def wait_for_step(self, step, seconds=90):
        def reached():
            assert self.process.poll() is None or self.done() >= step, self.text()
            return self.done() >= step

        wait_until(reached, seconds, lambda: f"step {step}: {self.text()}")

    def worker_on(self, node):
        """The id of a rank's process on a node, seen from outside."""
        def find():
            return [pid for pid in self.cluster.nodes[node].processes()
                    if " rank " in " ".join(arguments_of(pid))
                    or "train" in arguments_of(pid)[1:2]]

        return wait_until(find, 30, f"a rank on {node}")[0]

    def check_variables(self, *nodes):
        """Expects that ranks and agents have the variables, and that no command line shows a
        value."""
        for node in nodes:
            environment = environment_of(self.worker_on(node))
            assert {name: environment.get(name) for name in VARIABLES} == VARIABLES
            assert (self.dir.parent / node).read_text() == VARIABLES["MY_TOKEN"]
        shown = [arguments_of(pid) for machine in self.cluster.nodes.values() if machine.on
                 for pid in machine.processes()]
        assert len(shown) > 8 and "unspoken" not in str(shown)

@pytest.fixture(scope="session")
def undisturbed(run, tmp_path_factory):
    return reference(run, tmp_path_factory.mktemp("undisturbed"), STEPS)

def test_a_run_over_ssh_hosts_lives_through_a_killed_rank_and_a_lost_host(
        reachable, binary, folder, undisturbed):
    launched = Launched(reachable, binary, folder)
    try:
        launched.wait_for_step(8)
        launched.check_variables("n1", "n3")
        kill_process(launched.worker_on("n3"))
        launched.wait_for_step(12)
        launched.check_variables("n3")
        reachable.power_off("n4")
        assert launched.process.wait(120) == 0, launched.text()
    finally:
        if launched.process.poll() is None:
            launched.process.send_signal(signal.SIGKILL)
    assert curve(launched.dir) == undisturbed
    faults = [json.loads(line) for line in (launched.dir / "events.jsonl").read_text().splitlines()
              if '"fault"' in line]
    assert [(fault["kind"], fault["node"]) for fault in faults] == [("killed", "n3"), ("node", "n4")]
    assert "n4 is left out" in launched.log.read_text()
    assert "5:n3" in launched.log.read_text() and "5:n5" not in launched.log.read_text()
    assert "6:n5" in launched.log.read_text(), "the spare has taken the lost host's place"
    assert "\x1b" not in launched.log.read_text(), "control codes belong on a terminal"
    told = launched.log.read_text().partition("every rank gets the variables ")[2].splitlines()[0]
    assert set(VARIABLES) <= set(told.split(", "))
    # No file of the run contains the secrets.
    assert not any(word in path.read_text(errors="replace") for word in ("CONTROL_SECRET", "unspoken")
                   for path in [launched.log, *launched.dir.rglob("*.[jt]*")])

def test_hosts_that_cannot_be_reached_are_named(reachable, binary, folder):
    config = write_config(folder)
    done = reachable.call(
        binary("longhaul"), "launch", "--hosts", "n1,n6", "-n", 4, "--ranks-per-node", 2, config,
        *sets(*LAYOUT), node="n1", cwd=folder, check=False, seconds=100,
        env={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    assert done.returncode == 75
    assert "[nodes] the run needs 2 nodes and can use 1 (n1)" in done.stdout + done.stderr

