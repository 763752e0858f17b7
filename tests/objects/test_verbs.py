"""Every verb that reads names of files understands an address, or refuses it at once; no secret is
written anywhere, and no network is touched where no address is given."""

import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest
import xxhash
from fault_proxy import FaultProxy, Rule, Stalled
from outcomes import WRONG, address, files, refused
from processes import arguments_of, descendants, kill_all
from programs import BIN, later
from runs import PACE, curve, write_config
from servers import ACCESS_KEY, SECRET_KEY, environment

TOKEN = "token-5d1be0a7c3-of-the-tests"


# --- verbs

@pytest.mark.parametrize("name", ["store", "model", *later(
    "run", "run/checkpoints/step_00000004", "model/tokenizer.json",
    "model/model.safetensors.index.json")])
def test_inspect_says_of_objects_what_it_says_of_files(run, local, filled, env, name):
    here = run("longhaul", "inspect", local / name, check=False, env=env)
    there = run("longhaul", "inspect", address(name), check=False, env=env)
    assert there.returncode == here.returncode
    assert there.stdout.replace(address(name), str(local / name)) == here.stdout


def test_data_inspect_and_verify(run, local, filled, env):
    here = run("longhaul", "data", "inspect", local / "store", "--json", env=env)
    there = run("longhaul", "data", "inspect", address("store"), "--json", env=env)
    of_copy, of_files = json.loads(there.stdout), json.loads(here.stdout)
    assert of_copy == {**of_files, "path": address("store")}
    for name in ("store", "run/checkpoints/step_00000004"):
        assert address(name) in run("longhaul", "verify", address(name), env=env).stdout


@pytest.mark.parametrize("name", ["store/tokens_00000.bin", *later(
    "run/checkpoints/step_00000004/a1_rank_00000.safetensors")])
def test_verify_finds_a_bit_that_changed_in_the_store(run, local, filled, env, name):
    sound = (local / name).read_bytes()
    broken = bytearray(sound)
    broken[len(broken) // 2] ^= 4
    filled.put(name, bytes(broken))
    try:
        result = run("longhaul", "verify", address(str(pathlib.PurePath(name).parent)), env=env,
                     check=False)
    finally:
        filled.put(name, sound)
    assert result.returncode == WRONG
    assert pathlib.PurePath(name).name in result.stdout + result.stderr


def hash_of(content):
    """The hash of a file of one block, as base/hash.h computes it."""
    return xxhash.xxh3_128_hexdigest(xxhash.xxh3_128_hexdigest(content).encode())


def test_a_copy_that_was_damaged_is_named_by_its_address_and_mended_by_verify(run, filled, env,
                                                                             tmp_path):
    """The copy keeps its time on the disk, so that only the hash shows the damage. If a copy came
    in wrong while nobody compared ETags, its record has the hash of the wrong bytes."""
    run("longhaul", "verify", address("store"), env=env)
    cache = tmp_path / "home/cache/longhaul/objects"
    copy, = cache.rglob("content/store/tokens_00000.bin")
    record, = cache.rglob("copy.json")
    sound = copy.read_bytes()
    hashes = json.loads(record.read_text())
    copy.write_bytes(sound[:-1] + b"?")
    for file in hashes["files"]:
        if file["name"].endswith(copy.name):
            file["hash"] = hash_of(copy.read_bytes())
    del hashes["by_etag"]
    record.write_text(json.dumps(hashes))
    assert "is fetched again" in run("longhaul", "verify", address("store"), env=env).stderr
    for name, place in (("tokens_00000.bin", 0.5), ("store.json", 0)):
        copy, = cache.rglob(f"content/store/{name}")
        sound, times = copy.read_bytes(), copy.stat()
        broken = bytearray(sound)
        broken[int(len(broken) * place)] ^= 4
        copy.write_bytes(bytes(broken))
        os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
        wrong = run("longhaul", "data", "inspect", address("store"), env=env, check=False)
        # inspect prints what is wrong with the data.
        assert wrong.returncode == WRONG, wrong
        assert address("store") in wrong.stdout and str(cache) not in wrong.stdout, wrong.stdout
        mended = run("longhaul", "verify", address("store"), env=env)
        assert f"the copy of {address('store')} is damaged and is fetched again" in mended.stderr
        assert str(cache) not in mended.stdout, mended.stdout
        copy, = cache.rglob(f"content/store/{name}")
        assert copy.read_bytes() == sound


@pytest.mark.parametrize("name", ["store/tokens_00000.bin", *later(
    "store/tokenizer/tokenizer.json", "run/checkpoints/step_00000004/a1_rank_00000.safetensors")])
def test_what_came_in_wrong_is_found_by_the_hashes_of_the_store_itself(run, filled, proxy, proxied,
                                                                       name):
    """The ETags say nothing about the bytes. A file that arrives wrong once is fetched again, and
    no wrong copy is kept."""
    flip = Rule("flip", keys=name)
    proxy.rules = [flip, Rule("opaque", methods=("GET", "HEAD"), content=b"v1-")]
    of = address(str(pathlib.PurePath(name).parent).removesuffix("/tokenizer"))
    wrong = run("longhaul", "verify", of, env=proxied(), check=False)
    assert wrong.returncode == 75 and address(name) in wrong.stderr, wrong.stderr
    flip.times = flip.done + 2
    run("longhaul", "verify", of, env=proxied())
    assert proxy.faults()["flip"] == flip.times
    proxy.requests.clear()
    run("longhaul", "verify", of, env=proxied())
    assert proxy.count("GET", keys=name) == 0


def test_import(run, local, filled, env, tmp_path):
    for where, root in (("here", str(local)), ("there", "s3://corpus")):
        run("longhaul", "import", f"{root}/state.pt", "--config", f"{root}/model", "--out",
            tmp_path / where, env=env)
    assert files(tmp_path / "here") == files(tmp_path / "there")


@pytest.mark.parametrize("name", ["run/checkpoints/step_00000004", *later("run", "model")])
def test_export(run, local, filled, env, tmp_path, name):
    run("longhaul", "export", local / name, "--out", tmp_path / "here", env=env)
    run("longhaul", "export", address(name), "--out", tmp_path / "there", env=env)
    assert files(tmp_path / "here") == files(tmp_path / "there")


def test_eval_and_generate(run, local, filled, env):
    def evaluated(root):
        words = ["eval", f"{root}/model", "--data", f"{root}/store-val", "--seq-len", "64",
                 "--max-sequences", "4", "--json"]
        return json.loads(run("longhaul", *words, env=env).stdout)["loss"]

    def continued(root):
        words = ["generate", f"{root}/model", "--prompt", "The sea", "--max-new-tokens", "8",
                 "--json"]
        return json.loads(run("longhaul", *words, env=env).stdout)["ids"]

    assert evaluated("s3://corpus") == evaluated(local)
    assert continued("s3://corpus") == continued(local)


def test_a_checkpoint_of_a_mirror_is_a_copy_like_the_others(run, local, filled, tmp_path):
    """The copy is fetched once, stays while a verb reads it, and is deleted when its room is
    needed."""
    step, cache = local / "run/checkpoints/step_00000004", tmp_path / "home/cache/longhaul/objects"
    for name in files(step):
        filled.put_file("mirrored/step_00000004/" + name.replace("manifest.json",
                                                                 "manifest.a1.json"), step / name)

    def copied():
        return [path.parent.name for path in cache.rglob("manifest.json")]

    def copy_another():
        limit = str(sum(filled.sizes("store/").values()))
        words = [BIN / "longhaul_objects_tool", "copy", address("store"), cache, limit]
        return subprocess.run(words, env={**os.environ, **env}, capture_output=True, text=True,
                              timeout=60)

    with FaultProxy(filled.endpoint) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        run("longhaul", "verify", address("mirrored"), env=env)
        proxy.requests.clear()
        run("longhaul", "verify", address("mirrored/step_00000004"), env=env)
        assert proxy.bytes_sent("mirrored/.*safetensors") == 0
        proxy.rules = [Rule("slow", methods=("PUT", "POST"), keys="corpus/held/", seconds=600)]
        process = subprocess.Popen(
            [BIN / "longhaul", "export", address("mirrored"), "--out", address("held")],
            env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 60
        while not proxy.faults():
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.01)
        crowded = copy_another()
        assert crowded.returncode == WRONG and "has no room" in crowded.stderr, crowded
        assert copied() == ["step_00000004"]
        kill_all(process)
        proxy.rules = []
        crowded = copy_another()
        assert crowded.returncode == 0 and copied() == [], crowded


def test_a_step_of_a_mirror_that_is_passed_over_is_told(run, local, filled, env, tmp_path):
    step = local / "run/checkpoints/step_00000004"
    for name in files(step):
        filled.put_file("fallen/step_00000004/" + name.replace("manifest.json", "manifest.a1.json"),
                        step / name)
    filled.put_file("fallen/step_00000008/manifest.a1.json", step / "manifest.json")
    reason = "step_00000008/manifest.a1.json passed over: it is of step 4"
    result = run("longhaul", "verify", address("fallen"), env=env)
    assert "longhaul: warning: " in result.stderr and reason in result.stderr, result.stderr
    assert "newest whole checkpoint is step_00000004" in result.stderr
    # The older checkpoint is not whole either.
    filled.remove("fallen/step_00000004/a1_rank_00000.safetensors")
    refused(run("longhaul", "verify", address("fallen"), check=False, env=env), address("fallen"),
            "no checkpoint is whole", reason, "a1_rank_00000.safetensors is not there")
    assert not list((tmp_path / "home/cache").rglob("manifest.a1.json"))


def test_a_mirror_is_refused_as_first_weights_before_it_is_copied(run, local, filled, tmp_path):
    step = local / "run/checkpoints/step_00000004"
    for name in files(step):
        filled.put_file("begun/step_00000004/" + name.replace("manifest.json", "manifest.a1.json"),
                        step / name)
    with FaultProxy(filled.endpoint) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)

        def train(name, weights, check=True):
            return run("longhaul", "train", write_config(tmp_path, name), "--set",
                       f'init.weights="{weights}"', "--set", "run.stop_after=1", check=check, env=env)

        for name in ("begun", "begun/step_00000004"):
            result = train(f"refused-{len(name)}", address(name), check=False)
            refused(result, f"{address(name)}: is a mirror of checkpoints",
                    f"`longhaul export {address(name)} --out DIR`")
        assert proxy.bytes_sent("corpus/begun/.*safetensors") == 0
        run("longhaul", "export", address("begun"), "--out", tmp_path / "hf", env=env)
        # Training also reads the copy of a checkpoint that is in the store under the checkpoint's
        # own names.
        weights = (tmp_path / "hf", address("run/checkpoints/step_00000004"))
        for name, one in zip(("path", "address"), weights, strict=True):
            train(name, one)
    assert curve(tmp_path / "path") == curve(tmp_path / "address")


# --- training on data in a store

def sets(*words):
    return [word for one in words for word in ("--set", one)]


def data_at(root, cache):
    model = json.dumps(str(root) + "/model")
    return [f"model.config={model}", f'data.train=[{{ path = "{root}/store" }}]',
            f'data.validation=[{{ name = "v", path = "{root}/store-val" }}]', "validation.every=4",
            "validation.batches=1", f'data.cache="{cache}"', "run.steps=4"]


@pytest.fixture(scope="session")
def trained(run, local, tmp_path_factory):
    """The curve of a run on the local files."""
    root = tmp_path_factory.mktemp("trained")
    run("longhaul", "train", write_config(root), *sets(*data_at(local, root / "cache")))
    return curve(root / "run")


def test_plan_asks_the_store_for_sizes_only_with_look(run, local, filled, tmp_path):
    words = ["plan", write_config(tmp_path), *sets(f"model.config={json.dumps(str(local / 'model'))}",
                                                   'data.train=[{ path = "s3://corpus/store" }]',
                                                   f'data.cache="{tmp_path}"', "data.cache_gb=1e-6"),
             "--ranks", "1", "--hardware", "g5.48xlarge", "--json"]
    total = sum(filled.sizes("store/").values())
    told = "s3://corpus/store is an address, looked at by train"
    with FaultProxy(filled.endpoint) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        blind = json.loads(run("longhaul", *words, env=env).stdout)
        assert "copied_bytes" not in blind["storage"] and told in blind["not_checked"]
        assert proxy.requests == []
        found = json.loads(run("longhaul", *words, "--look", env=env).stdout)
        assert proxy.requests != []
    assert found["storage"]["copied_bytes"] == total
    assert found["storage"]["copied_s"] == pytest.approx(total / 6.269e9)
    assert found["storage"]["cache_room_bytes"] == 1000
    assert told not in found["not_checked"]
    text = run("longhaul", *words[:-1], "--look", env=environment(tmp_path / "home", filled.endpoint)).stdout
    assert "which each node copies to data.cache before step 1" in text and "room here 1.0 kB, lacks" in text


def test_a_start_fills_its_cache_of_kernels_with_what_it_lacks(run, filled, tmp_path):
    for name in ("ab/cd/abcd.neff", "ef/01/ef01.neff"):
        filled.put(f"kernels/{name}", name.encode())
    own = tmp_path / "kernels" / "ab" / "cd" / "abcd.neff"
    own.parent.mkdir(parents=True)
    own.write_text("own")
    words = sets('run.compile_cache_from="s3://corpus/kernels"', "run.steps=3",
                 f"run.compile_cache_dir={json.dumps(str(tmp_path / 'kernels'))}",
                 f"data.cache={json.dumps(str(tmp_path / 'cache'))}")
    env = environment(tmp_path / "home", filled.endpoint)
    said = run("longhaul", "train", write_config(tmp_path), *words, env=env).stdout
    assert "1 kernel from s3://corpus/kernels" in said
    assert files(tmp_path / "kernels") == {"ab/cd/abcd.neff": b"own", "ef/01/ef01.neff": b"ef/01/ef01.neff"}


@pytest.mark.parametrize("ranks", [2, *later(1)])
def test_training_on_objects_is_bitwise_that_on_files(run, local, filled, trained, tmp_path, ranks):
    cache = tmp_path / "cache"
    words = sets(*data_at("s3://corpus", cache))
    total = sum(filled.sizes("store/").values())
    with FaultProxy(filled.endpoint) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        run("longhaul", "train", write_config(tmp_path), *words, env=env, ranks=ranks)
        if ranks == 1:
            assert curve(tmp_path / "run") == trained
        # The bytes are sent once for both ranks of the node.
        assert proxy.bytes_sent("corpus/store/") < 1.2 * total
        proxy.requests.clear()
        run("longhaul", "train", write_config(tmp_path, "again"), *words, env=env)
        assert curve(tmp_path / "again") == trained
        assert proxy.bytes_sent("corpus/store/") == 0  # the copies were kept
        # A copy that has changed on the disk is fetched again.
        for copy in cache.rglob("tokens_*.bin"):
            damaged = bytearray(copy.read_bytes())
            damaged[len(damaged) // 2] ^= 4
            copy.chmod(0o644)
            copy.write_bytes(damaged)
        run("longhaul", "train", write_config(tmp_path, "third"), *words, env=env)
        assert curve(tmp_path / "third") == trained
        assert proxy.bytes_sent("corpus/store/tokens") > 0


@pytest.mark.parametrize("fault", ["flip", *later("truncated", "SlowDown", "reset_in_body",
                                                  "shorter")])
def test_copies_are_sound_whatever_fails_in_between(run, local, filled, trained, tmp_path, fault):
    rules = [Rule(fault, keys="corpus/(store|model)", times=4, bytes=100)]
    with FaultProxy(filled.endpoint, rules) as proxy:
        run("longhaul", "train", write_config(tmp_path),
            *sets(*data_at("s3://corpus", tmp_path / "cache")),
            env=environment(tmp_path / "home", proxy.endpoint))
        assert proxy.faults() == {fault: 4}
    assert curve(tmp_path / "run") == trained


def test_a_store_that_was_replaced_is_fetched_anew(run, local, filled, tmp_path):
    filled.put_folder("moving", local / "store")
    words = sets(*data_at("s3://corpus", tmp_path / "cache"),
                 'data.train=[{ path = "s3://corpus/moving" }]', "data.validation=[]")
    env = environment(tmp_path / "home", filled.endpoint)
    run("longhaul", "train", write_config(tmp_path, "one"), *words, env=env)
    filled.put_folder("moving", local / "store-val")
    run("longhaul", "train", write_config(tmp_path, "two"), *words, env=env)
    run("longhaul", "train", write_config(tmp_path, "here"),
        *sets(*data_at(local, tmp_path / "c"),
              f'data.train=[{{ path = "{local}/store-val" }}]', "data.validation=[]"))
    assert curve(tmp_path / "two") == curve(tmp_path / "here") != curve(tmp_path / "one")


def test_copies_keep_to_the_space_that_they_may_take(run, local, filled, tmp_path):
    cache, size = tmp_path / "cache", sum(filled.sizes("store/").values())
    filled.put_folder("second", local / "store")

    def train(name, limit, check=True):
        return run("longhaul", "train", write_config(tmp_path, name), *sets(
            *data_at(local, cache), f'data.train=[{{ path = "s3://corpus/{name}" }}]',
            "data.validation=[]", f"data.cache_gb={limit / 1e9:.12f}"), check=check,
            env=environment(tmp_path / "home", filled.endpoint))

    for name in ("store", "second"):
        train(name, int(1.5 * size))
        kept = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
        assert size <= kept <= 1.5 * size
    assert curve(tmp_path / "store") == curve(tmp_path / "second")
    shutil.rmtree(cache)
    refused(train("store", size // 2, check=False), address("store"), "data.cache_gb")


# --- training on a store in the order of its sequences

@pytest.fixture(scope="session")
def parted(run, local, filled):
    """Puts a store of many shards into the bucket; returns its record, and the bytes of its other
    files."""
    run("longhaul", "data", "build", local / "corpus/*.txt", "--tokenizer", local / "model",
        "--out", local / "parted", "--part-size", "8kB")
    filled.put_folder("parted", local / "parted")
    record = json.loads((local / "parted/store.json").read_text())
    assert len(record["shards"]) >= 4
    of_shards = {file["name"] for shard in record["shards"] for file in shard.values()
                 if isinstance(file, dict)}
    record["beside"] = sum(len(content) for name, content in files(local / "parted").items()
                           if name not in of_shards)
    return record


def bytes_of(shard):
    return sum(file["bytes"] for file in shard.values() if isinstance(file, dict))


def in_order(root, local, cache, steps, *more):
    return sets(*data_at(root, cache), f'model.config="{local}/model"', "data.validation=[]",
                f'data.train=[{{ path = "{root}/parted" }}]', "data.shuffle=false",
                f"run.steps={steps}", *more)


def steps_through(shards):
    """The number of steps of 8 sequences of 32 tokens that these shards are read for."""
    return sum(shard["tokens"] for shard in shards) // (8 * 32)


@pytest.mark.parametrize("ranks", [1, *later(2)])
def test_a_store_larger_than_the_cache_is_read_in_order(run, local, filled, parted, tmp_path,
                                                        ranks):
    shards = parted["shards"]
    limit = parted["beside"] + 2 * max(map(bytes_of, shards))
    assert limit < parted["beside"] + sum(map(bytes_of, shards))
    steps, cache = steps_through(shards), tmp_path / "cache"
    words = in_order("s3://corpus", local, cache, steps, f"data.cache_gb={limit / 1e9:.12f}")
    with FaultProxy(filled.endpoint) as proxy:
        run("longhaul", "train", write_config(tmp_path), *words, ranks=ranks,
            env=environment(tmp_path / "home", proxy.endpoint))
        # Each shard is sent once for all ranks of the node, and the first one again where training
        # begins anew with it.
        assert proxy.bytes_sent("corpus/parted/tokens_") < 1.5 * sum(
            shard["token_file"]["bytes"] for shard in shards)
        proxy.requests.clear()
        told = run("longhaul", "why", tmp_path / "run", "--step", 1, "--json",
                   env=environment(tmp_path / "elsewhere", proxy.endpoint)).stdout
        assert json.loads(told)["data_hash"] == json.loads(told)["recorded_data_hash"]
        sent = [proxy.bytes_sent(f"corpus/parted/{shard['token_file']['name']}") for shard in shards]
        assert sent[0] > 0 and sum(sent[2:]) == 0  # a step is read from its own shards
    assert sum(path.stat().st_size for path in cache.rglob("*.bin")) <= limit
    run("longhaul", "train", write_config(tmp_path, "here"),
        *in_order(local, local, tmp_path / "none", steps), ranks=ranks)
    assert curve(tmp_path / "run") == curve(tmp_path / "here")


@pytest.mark.soak
def test_a_start_in_the_middle_fetches_from_the_shard_of_its_place_on(run, local, filled, parted,
                                                                      tmp_path):
    shards, cache = parted["shards"], tmp_path / "cache"
    middle = steps_through(shards[:2]) + 2
    with FaultProxy(filled.endpoint) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        for steps in (middle, middle + 2):
            proxy.requests.clear()
            goes_on = ['schedule.continue="keep"'] if steps > middle else []
            words = in_order("s3://corpus", local, cache, steps, *goes_on)
            run("longhaul", "train", write_config(tmp_path), *words, env=env)
            shutil.rmtree(cache)
        assert proxy.bytes_sent(f"corpus/parted/{shards[0]['token_file']['name']}") == 0
        assert proxy.bytes_sent(f"corpus/parted/{shards[2]['token_file']['name']}") > 0


@pytest.mark.soak
def test_a_shard_that_is_replaced_in_the_middle_of_a_run_is_named(run, local, filled, parted,
                                                                  tmp_path):
    name = parted["shards"][2]["token_file"]["name"]
    sound = (local / "parted" / name).read_bytes()
    replace = Rule("call", keys="corpus/parted/tokens", times=1,
                   call=lambda: filled.put(f"parted/{name}", sound[::-1]))
    try:
        with FaultProxy(filled.endpoint, [replace]) as proxy:
            words = in_order("s3://corpus", local, tmp_path / "cache",
                             steps_through(parted["shards"]))
            refused(run("longhaul", "train", write_config(tmp_path), *words, check=False,
                        env=environment(tmp_path / "home", proxy.endpoint)),
                    address(f"parted/{name}"))
    finally:
        filled.put(f"parted/{name}", sound)


@pytest.mark.soak
def test_a_fetch_that_is_killed_leaves_no_copy_that_is_taken(filled, run, trained, tmp_path):
    slow = Rule("stall", keys="corpus/store/tokens", seconds=600, times=1)
    words = sets(*data_at("s3://corpus", tmp_path / "cache"))
    with FaultProxy(filled.endpoint, [slow]) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        process = subprocess.Popen([BIN / "longhaul", "train", write_config(tmp_path), *words],
                                   env={**os.environ, **env}, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 60
        while not proxy.faults():
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.01)
        process.kill()
        process.wait()
        run("longhaul", "train", write_config(tmp_path), *words, env=env)
    assert curve(tmp_path / "run") == trained


# --- places where an address makes no sense, and addresses of other kinds

@pytest.mark.parametrize("setting, words", [
    ('run.dir="s3://corpus/run"', ["run.dir", "s3://corpus/run", "checkpoint.mirror"]),
    ('data.train=[{ path = "gs://corpus/store" }]', ["gs://corpus/store", "s3://"]),
    *later(('data.cache="s3://corpus/cache"', ["data.cache", "s3://corpus/cache"]),
           ('checkpoint.mirror="gs://corpus/run"', ["checkpoint.mirror", "gs://corpus/run"]),
           ('checkpoint.mirror="/a/directory"', ["checkpoint.mirror", "s3://"]),
           ('model.config="gs://corpus/model"', ["gs://corpus/model"]),
           ('data.train=[{ path = "https://host/store" }]', ["https://host/store"]))])
def test_config_and_train_refuse_alike(run, env, tmp_path, setting, words):
    config = write_config(tmp_path)
    before = sorted(tmp_path.iterdir())
    for verb in ("config", "train"):
        refused(run("longhaul", verb, config, "--set", setting, check=False, env=env,
                    cwd=tmp_path), *words)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("arguments", [
    ["data", "build", "gs://corpus/*.jsonl", "--vocab-size", "300", "--out", "store"],
    *later(["inspect", "gs://corpus/store"], ["verify", "gs://corpus/store"],
           ["import", "gs://corpus/state.pt", "--out", "hf"],
           ["export", "gs://corpus/run", "--out", "hf"],
           ["eval", "gs://corpus/model", "--data", "store"],
           ["generate", "gs://corpus/model", "--prompt", "a"])])
def test_verbs_refuse_addresses_of_other_kinds_by_name(run, env, tmp_path, arguments):
    result = run("longhaul", *arguments, check=False, env=env, cwd=tmp_path)
    refused(result, next(word for word in arguments if word.startswith("gs://")), "s3://")
    assert [p.name for p in tmp_path.iterdir() if p.name != "home"] == []


def test_without_the_program_for_objects_the_reason_is_told(run, env, tmp_path):
    (tmp_path / "bin").mkdir()
    shutil.copy2(BIN / "longhaul", tmp_path / "bin/longhaul")
    result = subprocess.run([tmp_path / "bin/longhaul", "inspect", address("store")], text=True,
                            capture_output=True, env={**os.environ, **env}, timeout=60)
    refused(result, address("store"), "longhaul-objects")


# --- secrets

@pytest.mark.parametrize("text", [
    f"s3://{ACCESS_KEY}:{SECRET_KEY}@corpus/store", *later(
        f"s3://corpus/store?access_key={ACCESS_KEY}&secret_key={SECRET_KEY}",
        f"s3://{SECRET_KEY}@corpus/store")])
def test_a_secret_in_an_address_is_refused_and_not_repeated(run, env, tmp_path, text):
    for arguments in (["inspect", text], ["config", write_config(tmp_path), "--set",
                                          f'checkpoint.mirror="{text}"']):
        result = run("longhaul", *arguments, check=False, env=env)
        refused(result, "s3://")
        assert SECRET_KEY not in result.stdout + result.stderr


def holders(folder, secrets):
    """The files below `folder` that hold one of the secrets."""
    return [path for path in folder.rglob("*") if path.is_file()
            and any(secret.encode() in path.read_bytes() for secret in secrets)]


def test_no_secret_is_written_anywhere(servers, local, tmp_path):
    """The store also refuses requests in the middle of the run. moto does not check the keys."""
    store = servers("moto")
    for name in ("model", "store", "store-val"):
        store.put_folder(name, local / name)
    config, output = write_config(tmp_path), tmp_path / "output.txt"
    words = sets(*data_at("s3://corpus", tmp_path / "cache"), "run.steps=30", "checkpoint.every=5",
                 'checkpoint.mirror="s3://corpus/secret-run"', "validation.every=10", PACE)
    seen = set()
    with FaultProxy(store.endpoint) as proxy, output.open("wb") as out:
        env = environment(tmp_path / "home", proxy.endpoint, patience=2, token=TOKEN)
        process = subprocess.Popen([BIN / "longhaul", "train", config, *words], stdout=out,
                                   stderr=subprocess.STDOUT, env={**os.environ, **env})
        limit = time.monotonic() + 120
        while process.poll() is None:
            assert time.monotonic() < limit
            for pid in (process.pid, *descendants(process.pid)):
                seen.add(arguments_of(pid))
            if proxy.count("PUT", "POST", keys="secret-run") > 6 and not proxy.rules:
                proxy.rules = [Rule("AccessDenied", methods=("PUT", "POST"), keys="secret-run")]
            time.sleep(0.01)
    assert process.returncode == 0, output.read_text()
    assert any(b"longhaul" in words for words in seen)
    assert store.keys("secret-run/")
    secrets = [SECRET_KEY, TOKEN]
    assert not any(secret.encode() in words for secret in secrets for words in seen)
    assert holders(tmp_path, secrets) == []
    for key in store.keys("secret-run/"):
        assert not any(secret.encode() in store.get(key) for secret in secrets)


# --- no address, no network

def test_nothing_is_connected_to_where_no_address_is_given(run, local, tmp_path):
    with Stalled() as silent:
        env = {**environment(tmp_path / "home", silent.endpoint), "http_proxy": silent.endpoint,
               "https_proxy": silent.endpoint, "AWS_ENDPOINT_URL": silent.endpoint}
        run("longhaul", "data", "build", local / "corpus/*.txt", "--tokenizer", local / "model",
            "--out", tmp_path / "store", env=env)
        run("longhaul", "inspect", local / "store", env=env)
        run("longhaul", "verify", local / "store", env=env)
        run("longhaul", "train", write_config(tmp_path),
            *sets(*data_at(local, tmp_path / "cache")), env=env)
        run("longhaul", "export", tmp_path / "run", "--out", tmp_path / "hf", env=env)
        time.sleep(0.2)
        assert silent.connections == 0


def test_no_process_for_objects_is_started_where_no_address_is_given(local, tmp_path):
    process = subprocess.Popen(
        [BIN / "longhaul", "train", write_config(tmp_path),
         *sets(*data_at(local, tmp_path / "cache"), "run.steps=40", PACE)],
        stdout=subprocess.DEVNULL, env={**os.environ, "HOME": str(tmp_path)})
    seen = set()
    while process.poll() is None:
        seen |= {arguments_of(pid) for pid in descendants(process.pid)}
        time.sleep(0.02)
    assert process.returncode == 0
    assert not any(b"longhaul-objects" in words for words in seen), seen
