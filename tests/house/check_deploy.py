"""The filled files of deploy/ load in the schemas of the programs that read them.

- ParallelCluster: the marshmallow classes of the package aws-parallelcluster, and those of its
  validators that do not ask AWS: storage, Slurm's settings, monitoring. Those of nodes and
  queues ask and are not run.
- HyperPod: the shape of SageMaker's CreateCluster in botocore.
- Kubernetes: the strict JSON schemas of kubernetes-validate. None is published there for
  MPIJob: its fields are listed below after kubeflow/mpi-operator,
  pkg/apis/kubeflow/v2beta1/types.go, and its pod templates are checked as such.
- Container: hadolint; the launcher inside the ConfigMap: shellcheck.

Needs requirements-deploy.txt: run it by tools/check_deploy.sh.
"""

import json
import logging
import os
import pathlib
import subprocess
import sys

os.environ.update(AWS_EC2_METADATA_DISABLED="true", AWS_DEFAULT_REGION="us-east-1",
                  AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
import yaml  # noqa: E402

import deploy_examples  # noqa: E402
import house  # noqa: E402

KUBERNETES = "1.37.0"
# For each name: a type, the allowed values, or a table of the names below it.
MPIJOB_SPEC = {
    "slotsPerWorker": int, "sshAuthMountPath": str, "waitForWorkers": bool,
    "mpiImplementation": ("OpenMPI", "Intel", "MPICH"),
    "launcherCreationPolicy": ("AtStartup", "WaitForWorkersReady"),
    "runPolicy": {
        "cleanPodPolicy": ("All", "Running", "None"), "ttlSecondsAfterFinished": int,
        "activeDeadlineSeconds": int, "backoffLimit": int, "suspend": bool,
        "schedulingPolicy": {"minAvailable": int, "queue": str, "priorityClass": str,
                             "scheduleTimeoutSeconds": int, "minResources": dict},
    },
    "mpiReplicaSpecs": {
        kind: {"replicas": int, "restartPolicy": ("Always", "OnFailure", "Never", "ExitCode"),
               "template": dict} for kind in ("Launcher", "Worker")},
}


def wrong_fields(found, wanted, where):
    """Differences of `found` from a table as MPIJOB_SPEC."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [f"{where}: not a mapping"]
        problems = [f"{where}: unknown field {name}" for name in found if name not in wanted]
        for name in found:
            if name in wanted:
                problems += wrong_fields(found[name], wanted[name], f"{where}.{name}")
        return problems
    if isinstance(wanted, tuple):
        return [] if found in wanted else [f"{where}: {found!r} is none of {wanted}"]
    good = isinstance(found, wanted) and (wanted is bool or not isinstance(found, bool))
    return [] if good else [f"{where}: {found!r} is no {wanted.__name__}"]


def problems_of_cluster(text):
    from marshmallow import ValidationError
    from pcluster.schemas.cluster_schema import ClusterSchema
    from pcluster.validators.slurm_settings_validator import SLURM_SETTINGS_DENY_LIST

    try:
        cluster = ClusterSchema(cluster_name="longhaul").load(yaml.safe_load(text))
    except ValidationError as error:
        return [f"schema: {error}"]
    settings = cluster.scheduling.settings
    denied = {name for group in SLURM_SETTINGS_DENY_LIST["SlurmConf"].values() for name in group}
    problems = [f"ParallelCluster keeps {name} to itself"
                for setting in settings.custom_slurm_settings or []
                for name in setting if name.lower() in denied]
    for part in [*cluster.shared_storage, settings, cluster.monitoring]:
        problems += [result.message for result in part.validate() if result.level.name != "INFO"]
    return problems


def problems_of_hyperpod(text):
    import botocore.session
    import botocore.validate

    model = botocore.session.get_session().get_service_model("sagemaker")
    shape = model.operation_model("CreateCluster").input_shape
    report = botocore.validate.ParamValidator().validate(json.loads(text), shape)
    problems = [report.generate_report()] if report.has_errors() else []
    # botocore checks types and names only. This function checks the values of enumerations.
    def walk(value, expected, where):
        if expected.type_name == "structure":
            for name in value:
                if name in expected.members:
                    walk(value[name], expected.members[name], f"{where}.{name}")
        elif expected.type_name == "list":
            for item in value:
                walk(item, expected.member, where)
        elif getattr(expected, "enum", None) and value not in expected.enum:
            problems.append(f"{where}: {value} is none of SageMaker's")
    walk(json.loads(text), shape, "CreateCluster")
    return problems


def problems_of_pod(pod, where):
    """A pod template by its own schema: wrapped as a Job, the smallest object that holds one."""
    pod = json.loads(json.dumps(pod))
    pod["spec"].setdefault("restartPolicy", "Never")  # the operator sets it from the replica's
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"},
           "spec": {"template": pod}}
    return problems_of_object(job, where)


def problems_of_object(data, where):
    import kubernetes_validate

    try:
        kubernetes_validate.validate(data, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{where}: {'.'.join(map(str, error.path))}: {error.message}"]
    return []


def problems_of_kubernetes(text):
    problems = []
    for data in yaml.safe_load_all(text):
        kind = data["kind"]
        if kind != "MPIJob":
            problems += problems_of_object(data, kind)
            continue
        if data["apiVersion"] != "kubeflow.org/v2beta1":
            problems.append(f"MPIJob of {data['apiVersion']}")
        extra = set(data) - {"apiVersion", "kind", "metadata", "spec"}
        problems += [f"MPIJob: unknown field {name}" for name in sorted(extra)]
        problems += wrong_fields(data["spec"], MPIJOB_SPEC, "MPIJob.spec")
        for name, replica in data["spec"]["mpiReplicaSpecs"].items():
            problems += problems_of_pod(replica["template"], f"MPIJob {name}")
    return problems


def run(name, command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    return [f"{name}: {done.stdout}{done.stderr}".rstrip()] if done.returncode else []


PLANTED = [
    ("parallelcluster", problems_of_cluster, "MaxCount:", "MaximumCount:"),
    ("parallelcluster", problems_of_cluster, "KillWait:", "ResumeTimeout:"),
    ("parallelcluster", problems_of_cluster, "Os: ubuntu2404", "Os: debian12"),
    ("parallelcluster", problems_of_cluster, "StorageCapacity: 4800", "StorageCapacity: 5000"),
    ("parallelcluster", problems_of_cluster, "PERSISTENT_2", "PERSISTENT_3"),
    ("hyperpod", problems_of_hyperpod, '"NodeRecovery"', '"NodeRecover"'),
    ("hyperpod", problems_of_hyperpod, '"Automatic"', '"Always"'),
    ("hyperpod", problems_of_hyperpod, '"InstanceCount": 4', '"InstanceCount": "4"'),
    ("kubernetes", problems_of_kubernetes, "slotsPerWorker", "slotsPerworker"),
    ("kubernetes", problems_of_kubernetes, "restartPolicy: OnFailure", "restartPolicy: Sometimes"),
    ("kubernetes", problems_of_kubernetes, "volumeMounts:", "volumemounts:"),
    ("kubernetes", problems_of_kubernetes, "accessModes:", "accessMode:"),
]


def missed_mistakes():
    """Each of PLANTED put into a filled file: what no check reports."""
    missed = []
    for kind, problems_of, old, new in PLANTED:
        text = deploy_examples.filled(kind)
        if old not in text:
            missed.append(f"planted mistake: {kind} has no '{old}' any more")
        elif not problems_of(text.replace(old, new)):
            missed.append(f"planted mistake: {kind} with '{new}' passes")
    return missed


def main():
    logging.disable(logging.CRITICAL)  # pcluster complains that it has no credentials
    bin_dir = pathlib.Path(sys.executable).parent
    problems, checked = [], 0
    for queues in ("trn2 p4d p5", "p5-block", "trn2"):
        for storage in ("fsx", "efs"):
            text = deploy_examples.filled("parallelcluster", QUEUES=queues, STORAGE=storage)
            problems += [f"parallelcluster, {queues}, {storage}: {p}"
                         for p in problems_of_cluster(text)]
            checked += 1
    reserved = {f"{queue}_RESERVATION": "cr-0123456789abcdef0" for queue in ("TRN2", "P4D", "P5")}
    problems += [f"parallelcluster, reserved: {p}" for p in
                 problems_of_cluster(deploy_examples.filled("parallelcluster", **reserved))]
    for plan in ("", "arn:aws:sagemaker:us-east-1:123456789012:training-plan/ours"):
        problems += [f"hyperpod: {p}" for p in
                     problems_of_hyperpod(deploy_examples.filled("hyperpod", TRAINING_PLAN=plan,
                                                                 NODE_TYPE="ml.trn2.48xlarge"))]
    for device in ("cpu", "nvidia", "neuron"):
        text = deploy_examples.filled("kubernetes", DEVICE=device)
        problems += [f"kubernetes, {device}: {p}" for p in problems_of_kubernetes(text)]
    config = next(d for d in yaml.safe_load_all(text) if d["kind"] == "ConfigMap")
    problems += run("launcher.sh", ["shellcheck", "--severity=warning", "-"],
                    config["data"]["launcher.sh"])
    container = str(deploy_examples.DEPLOY / "container" / "Containerfile")
    problems += run("Containerfile", [str(bin_dir / "hadolint"), "--failure-threshold", "info",
                                      container])
    problems += missed_mistakes()
    house.finish("deploy", problems, checked + 8)


if __name__ == "__main__":
    main()
