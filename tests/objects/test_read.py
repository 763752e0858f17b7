"""`data build` reads objects where they lie: the same store as from local files, whatever fails in
between, and a message with what to do where it cannot go on. Training that waits for a shard says
so, and ends when it is asked to."""

import json
import os
import random
import signal
import subprocess
import time

import pytest
from corpus import KINDS, address, documents, inputs_of, lines_of, same_store, write_corpus
from datasets import Dataset
from fault_proxy import FaultProxy, Rule, make_authority
from processes import descendants, wait_until_gone
from programs import BIN, command_of, later, split
from runs import curve, steps_of, write_config
from servers import ACCESS_KEY, SECRET_KEY, environment, free_port

WRONG, TEMPORARY = 78, 75
PATIENCE = 2      # seconds, of tests in which a fault stays
PARTS = ["--part-size", "200KB"]
AND_THEN = 45     # seconds that a program may take beside its patience, on a busy machine
# Faults that pass: each of the first requests that read an object meets one.
PASSING = ["SlowDown", "InternalError", "RequestTimeTooSkewed", "reset", "reset_in_body",
           "truncated", "longer", "shorter", "slow"]
# Faults that stay: the exit code, and a word of the message's advice.
STAYING = {
    "SlowDown": (TEMPORARY, ""), "InternalError": (TEMPORARY, ""), "reset": (TEMPORARY, ""),
    "reset_in_body": (TEMPORARY, ""), "truncated": (TEMPORARY, ""), "shorter": (TEMPORARY, ""),
    "ExpiredToken": (TEMPORARY, "expired"), "RequestTimeTooSkewed": (WRONG, "clock"),
    "AccessDenied": (WRONG, "AWS_"), "InvalidAccessKeyId": (WRONG, "AWS_ACCESS_KEY_ID"),
    "NoSuchBucket": (WRONG, "bucket"),
}


@pytest.fixture(scope="session")
def local(run, tmp_path_factory):
    """The corpus as local files, with a tokenizer."""
    root = tmp_path_factory.mktemp("local")
    write_corpus(root / "corpus")
    run("longhaul", "data", "train-tokenizer", root / "corpus/lines/part-0.jsonl", "--out",
        root / "tokenizer", "--vocab-size", "300")
    return root


@pytest.fixture(scope="session")
def filled(servers, local):
    """Returns a server that holds the corpus."""
    done = {}

    def get(name):
        if name not in done:
            servers(name).put_folder("corpus", local / "corpus")
            done[name] = servers(name)
        return done[name]
    return get


@pytest.fixture(scope="session")
def expected(run, local):
    """Returns the store that is built from a kind's local files."""
    done = {}

    def get(kind):
        if kind not in done:
            done[kind] = local / "stores" / kind.replace(" ", "_")
            build(run, local, inputs_of(kind, local / "corpus"), done[kind])
        return done[kind]
    return get


def words_of_build(local, inputs, out, *more):
    return ["data", "build", *inputs, "--tokenizer", local / "tokenizer", "--out", out, *more]


def build(run, local, inputs, out, *more, check=True, env=()):
    out.parent.mkdir(parents=True, exist_ok=True)
    return run("longhaul", *words_of_build(local, inputs, out, *more), check=check,
               env=dict(env), timeout=120)


def retries(result):
    """The number of requests that the build has tried again, as its output says."""
    return json.loads(result.stdout)["objects"]["retries"]


def refused(result, code, *words):
    said = result.stderr
    assert result.returncode == code, (result.returncode, result.stdout, said)
    assert said.count("longhaul: error: ") == 1 and "please report" not in said, said
    for word in words:
        assert word.lower() in said.lower(), (word, said)
    assert SECRET_KEY not in said + result.stdout


def without_keys(env):
    return {name: value for name, value in env.items()
            if name not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}


# --- what is read

@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("server", ["rclone", *later("moto")])
def test_a_build_from_objects_is_bitwise_that_from_files(run, local, filled, expected, tmp_path,
                                                         server, kind):
    build(run, local, inputs_of(kind, address("corpus")), tmp_path / "store",
          env=environment(tmp_path / "home", filled(server).endpoint))
    same_store(tmp_path / "store", expected(kind))
    if kind == "holdout":
        same_store(tmp_path / "store-val", expected(kind).with_name("holdout-val"))
    # The inputs were only streamed: no copy of them is kept.
    assert not (tmp_path / "home/cache").exists()


def test_the_other_server_gives_the_same(run, local, filled, expected, tmp_path):
    build(run, local, inputs_of("several", address("corpus")), tmp_path / "store",
          env=environment(tmp_path / "home", filled("moto").endpoint))
    same_store(tmp_path / "store", expected("several"))


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", *later("SSL_CERT_FILE")])
def test_a_server_with_an_authority_of_its_own(run, local, filled, expected, tmp_path, variable):
    authority, context = make_authority(tmp_path / "tls")
    inputs = inputs_of("lines", address("corpus"))
    with FaultProxy(filled("rclone").endpoint, tls=context) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint, patience=PATIENCE)
        build(run, local, inputs, tmp_path / "store", env={**env, variable: str(authority)})
        same_store(tmp_path / "store", expected("lines"))
        assert proxy.count("GET") > 0
        unknown = build(run, local, inputs, tmp_path / "other", env=env, check=False)
        refused(unknown, unknown.returncode, "certificate", "AWS_CA_BUNDLE")
        assert unknown.returncode in (WRONG, TEMPORARY)


@pytest.mark.soak
def test_without_a_signature_where_that_is_asked_for(run, local, filled, expected, tmp_path):
    with FaultProxy(filled("open").endpoint) as proxy:
        env = {**without_keys(environment(tmp_path / "home", proxy.endpoint)),
               "AWS_NO_SIGN_REQUEST": "true"}
        build(run, local, inputs_of("lines", address("corpus")), tmp_path / "store", env=env)
        assert not any(r.signer for r in proxy.requests)
    same_store(tmp_path / "store", expected("lines"))


@pytest.mark.soak
def test_keys_and_the_address_of_the_store_may_stand_in_the_files_of_the_home(
        run, local, filled, expected, tmp_path):
    env = without_keys(environment(tmp_path / "home", ""))
    (tmp_path / "home/.aws").mkdir()
    (tmp_path / "home/.aws/credentials").write_text(
        f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
    (tmp_path / "home/.aws/config").write_text(
        f"[default]\nregion = eu-west-1\nendpoint_url = {filled('rclone').endpoint}\n")
    del env["AWS_REGION"], env["AWS_ENDPOINT_URL_S3"]
    build(run, local, inputs_of("lines", address("corpus")), tmp_path / "store", env=env)
    same_store(tmp_path / "store", expected("lines"))


# --- faults that pass

def of_objects(fault, **more):
    return Rule(fault, keys="corpus/corpus/", seconds=0.3, **more)


@pytest.mark.parametrize("fault", split(PASSING, [
    "SlowDown", "reset", "reset_in_body", "truncated", "longer", "shorter"]))
@pytest.mark.parametrize("server", ["rclone", *later("moto")])
def test_a_fault_that_passes_costs_nothing_but_a_retry(run, local, filled, expected, tmp_path,
                                                       server, fault):
    # The program corrects a clock that differs by the store's first answer.
    times = 1 if fault == "RequestTimeTooSkewed" else 3
    with FaultProxy(filled(server).endpoint, [of_objects(fault, times=times)]) as proxy:
        result = build(run, local, inputs_of("lines", address("corpus")), tmp_path / "store",
                       "--json", env=environment(tmp_path / "home", proxy.endpoint))
        assert proxy.faults() == {fault: times}
    same_store(tmp_path / "store", expected("lines"))
    if fault not in ("slow", "reset"):  # libcurl may ask again by itself
        assert retries(result) >= 1, result.stdout


@pytest.mark.parametrize("fault", ["SlowDown", *later("reset", "InternalError")])
def test_a_fault_of_what_is_listed_or_looked_at_passes(run, local, filled, expected, tmp_path,
                                                       fault):
    rules = [Rule(fault, methods=("GET",), query="list-type", times=2),
             Rule(fault, methods=("HEAD",), times=2)]
    with FaultProxy(filled("rclone").endpoint, rules) as proxy:
        build(run, local, inputs_of("lines", address("corpus")), tmp_path / "store",
              env=environment(tmp_path / "home", proxy.endpoint))
        assert proxy.faults()[fault] >= 2
    same_store(tmp_path / "store", expected("lines"))


@pytest.mark.soak
def test_a_range_that_a_server_overlooks_is_never_taken_for_what_was_asked(
        run, local, filled, expected, tmp_path):
    with FaultProxy(filled("moto").endpoint, [of_objects("whole", times=3)]) as proxy:
        build(run, local, inputs_of("parquet", address("corpus")), tmp_path / "store",
              env=environment(tmp_path / "home", proxy.endpoint))
    same_store(tmp_path / "store", expected("parquet"))


@pytest.mark.soak
def test_an_answer_that_stalls_is_asked_for_again(run, local, filled, expected, tmp_path):
    rule = Rule("stall", keys="corpus/corpus/", seconds=600, times=2)
    with FaultProxy(filled("rclone").endpoint, [rule]) as proxy:
        build(run, local, inputs_of("lines", address("corpus")), tmp_path / "store",
              env=environment(tmp_path / "home", proxy.endpoint))
    same_store(tmp_path / "store", expected("lines"))


@pytest.mark.parametrize("seed", later(*range(10)))
@pytest.mark.parametrize("kind", ["lines", "saved", "twice"])
def test_any_faults_at_any_time(run, local, filled, expected, tmp_path, seed, kind):
    rules = [Rule(fault, methods=("GET", "HEAD"), share=0.06, seconds=0.3)
             for fault in PASSING if fault != "RequestTimeTooSkewed"]
    with FaultProxy(filled("rclone").endpoint, rules, seed) as proxy:
        build(run, local, inputs_of(kind, address("corpus")), tmp_path / "store",
              env=environment(tmp_path / "home", proxy.endpoint))
    same_store(tmp_path / "store", expected(kind))


# --- faults that stay

@pytest.mark.parametrize("fault", split(STAYING, ["SlowDown", "ExpiredToken", "RequestTimeTooSkewed", "NoSuchBucket"]))
def test_a_fault_that_stays_is_named_in_time_and_the_same_command_goes_on_later(
        run, local, filled, expected, tmp_path, fault):
    code, word = STAYING[fault]
    inputs = inputs_of("lines", address("corpus"))
    # The fault begins with the second request for an object, so what was read before is sound.
    with FaultProxy(filled("rclone").endpoint) as proxy:
        proxy.rules = [of_objects(fault, first=2)]
        if code == WRONG:
            proxy.rules.append(Rule(fault, methods=("GET", "HEAD"), first=6))
        env = environment(tmp_path / "home", proxy.endpoint, patience=PATIENCE)
        begin = time.monotonic()
        result = build(run, local, inputs, tmp_path / "store", check=False, env=env)
        assert time.monotonic() - begin < PATIENCE + AND_THEN
        refused(result, code, address(""), word)
        assert proxy.faults()[fault] > 0
        assert not (tmp_path / "store").exists()
        # A request that is refused is not repeated; one that may succeed later is repeated after a
        # wait.
        assert sum(proxy.faults().values()) < 120
        proxy.rules = []
        build(run, local, inputs, tmp_path / "store", env=env)
    same_store(tmp_path / "store", expected("lines"))


def test_an_input_that_is_another_object_is_never_built_from(run, local, filled, expected, tmp_path):
    inputs = inputs_of("lines", address("corpus"))
    other = (local / "corpus/lines/part-0.jsonl").read_bytes().swapcase()
    wrong = Rule("other", keys="lines/part-0.jsonl", content=other, times=1)
    with FaultProxy(filled("rclone").endpoint, [wrong]) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint, patience=PATIENCE)
        for wrong.times in range(1, 6):  # a late answer, on a busy machine, is asked for again
            result = build(run, local, inputs, tmp_path / f"{wrong.times}", check=False, env=env)
            if "1 of them tried again" not in result.stdout: break
        refused(result, TEMPORARY, address("corpus/lines/part-0.jsonl"), "ETag")
        assert not (tmp_path / f"{wrong.times}").exists()
        wrong.times = None
        result = build(run, local, inputs, tmp_path / "store", check=False, env=env)
        refused(result, WRONG, address("corpus/lines/part-0.jsonl"), "LONGHAUL_OBJECTS_ETAGS")
        proxy.rules = []
        build(run, local, inputs, tmp_path / "store", env=env)
    same_store(tmp_path / "store", expected("lines"))


def test_nobody_at_the_address_of_the_store(run, local, tmp_path):
    env = environment(tmp_path / "home", f"http://127.0.0.1:{free_port()}", patience=PATIENCE)
    begin = time.monotonic()
    result = build(run, local, [address("a.jsonl")], tmp_path / "store", check=False, env=env)
    assert time.monotonic() - begin < PATIENCE + AND_THEN
    refused(result, TEMPORARY, address("a.jsonl"))


@pytest.mark.parametrize("inputs, words", [
    (["s3://corpus/corpus/absent.jsonl"], ["absent.jsonl"]),
    (["s3://corpus/corpus/absent/*.jsonl"], ["absent/*.jsonl"]),
    (["s3://no-such-bucket/a.jsonl"], ["no-such-bucket", "bucket"]),
    (["s3://"], ["s3://"]), *later(
        (["s3://corpus"], ["s3://corpus"]),
        (["s3://Corpus_/a.jsonl"], ["Corpus_"]),
        (["s3://corpus/a//b.jsonl"], ["a//b.jsonl"]),
        (["s3://corpus/../b.jsonl"], [".."]))])
def test_what_is_not_there_is_refused_by_name(run, local, filled, tmp_path, inputs, words):
    env = environment(tmp_path / "home", filled("rclone").endpoint, patience=PATIENCE)
    refused(build(run, local, inputs, tmp_path / "store", check=False, env=env), WRONG, *words)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("case", ["secret", *later("none", "access")])
def test_keys_that_do_not_open_the_store(run, local, filled, tmp_path, case):
    env = environment(tmp_path / "home", filled("rclone").endpoint, patience=PATIENCE)
    if case == "secret":
        env["AWS_SECRET_ACCESS_KEY"] = "another-secret"
    elif case == "access":
        env["AWS_ACCESS_KEY_ID"] = "NOBODY"
    else:
        env = without_keys(env)
    result = build(run, local, inputs_of("one object", address("corpus")), tmp_path / "store",
                   check=False, env=env)
    refused(result, WRONG, address("corpus"), "AWS_")
    assert "another-secret" not in result.stderr + result.stdout


# --- an object that is replaced

@pytest.mark.parametrize("kind, nth", [
    ("lines", 1), *later(("twice", 1), ("twice", 2), ("parquet", 1), ("parquet", 3),
                         ("saved", 1), ("gzip", 1))])
@pytest.mark.parametrize("server", ["rclone", *later("moto")])
def test_an_object_that_is_replaced_while_it_is_read_is_found(run, local, filled, tmp_path, server,
                                                              kind, nth):
    """rclone's server ignores If-Match, and moto does not."""
    name = {"lines": "lines/part-1.jsonl", "twice": "lines/part-1.jsonl",
            "parquet": "parquet/part-1.parquet", "saved": "saved/data-00000-of-00002.arrow",
            "gzip": "gzip/part-1.jsonl.gz"}[kind]
    # The new object is as long as the old one, so that only its version differs.
    store, old = filled(server), (local / "corpus" / name).read_bytes()
    other = bytes([*old[:-40], *reversed(old[-40:])])
    assert len(other) == len(old) and other != old
    replaced = Rule("call", keys=f"corpus/corpus/{name}", nth=(nth,),
                    call=lambda: store.put(f"corpus/{name}", other))
    try:
        with FaultProxy(store.endpoint, [replaced]) as proxy:
            result = build(run, local, inputs_of(kind, address("corpus")), tmp_path / "store",
                           check=False, env=environment(tmp_path / "home", proxy.endpoint))
            if not proxy.faults():
                pytest.skip(f"the object is read by fewer than {nth} requests")
    finally:
        store.put(f"corpus/{name}", old)
    refused(result, WRONG, address(f"corpus/{name}"))
    assert "replaced" in result.stderr or "changed" in result.stderr, result.stderr
    assert not (tmp_path / "store").exists()


def test_after_a_kill_a_replaced_object_is_read_anew(run, local, filled, tmp_path):
    store, texts = filled("rclone"), [documents(300, seed) for seed in range(3)]
    for number, part in enumerate(texts):
        store.put(f"changing/{number}.jsonl", lines_of(part))
    env = environment(tmp_path / "home", store.endpoint)
    inputs, new = [address("changing/*.jsonl")], lines_of(documents(300, 9))
    with FaultProxy(store.endpoint, [Rule("AccessDenied", keys="changing/2")]) as proxy:
        first = build(run, local, inputs, tmp_path / "store", *PARTS, check=False,
                      env={**env, "AWS_ENDPOINT_URL_S3": proxy.endpoint})
        assert first.returncode == WRONG
    store.put("changing/0.jsonl", new)
    again = build(run, local, inputs, tmp_path / "store", *PARTS, check=False, env=env)
    if again.returncode:  # or it begins anew by itself
        refused(again, WRONG, "--restart")
        build(run, local, inputs, tmp_path / "store", "--restart", *PARTS, env=env)
    for number, part in enumerate([new, *map(lines_of, texts[1:])]):
        (tmp_path / f"{number}.jsonl").write_text(part)
    build(run, local, [str(tmp_path / "?.jsonl")], tmp_path / "expected", *PARTS)
    same_store(tmp_path / "store", tmp_path / "expected")


# --- how much at once, and after a kill

@pytest.fixture(scope="module")
def many(run, local, filled, tmp_path_factory):
    """40 objects of about 100 KB, and the store that they make."""
    root = tmp_path_factory.mktemp("many")
    for number in range(40):
        text = lines_of(documents(250, 100 + number))
        (root / f"{number:02}.jsonl").write_text(text)
        filled("rclone").put(f"many/{number:02}.jsonl", text)
    build(run, local, [str(root / "*.jsonl")], root / "store", *PARTS)
    return root


def test_many_objects_are_read_at_once_but_not_too_many(run, local, filled, many, tmp_path):
    slow = Rule("slow", keys="corpus/many/", seconds=0.1)
    with FaultProxy(filled("rclone").endpoint, [slow]) as proxy:
        build(run, local, [address("many/*.jsonl")], tmp_path / "store", *PARTS,
              env=environment(tmp_path / "home", proxy.endpoint))
        assert 4 <= proxy.most_in_flight["GET"] <= 16
        # Each object is read once, and of the stored bytes hardly any is read twice.
        total = sum(path.stat().st_size for path in many.glob("*.jsonl"))
        assert total <= proxy.bytes_sent("corpus/many/") < 1.1 * total
    same_store(tmp_path / "store", many / "store")


@pytest.mark.parametrize("reached", [0.5, *later(0.1, 0.9)])
def test_a_killed_build_goes_on_and_leaves_no_process(run, local, filled, many, tmp_path,
                                                      reached):
    slow = Rule("slow", keys="corpus/many/", seconds=0.15)
    total = sum(path.stat().st_size for path in many.glob("*.jsonl"))
    words = [str(w) for w in words_of_build(local, [address("many/*.jsonl")], tmp_path / "store",
                                            *PARTS, "--threads", "1")]
    with FaultProxy(filled("rclone").endpoint, [slow]) as proxy:
        env = {**os.environ, **environment(tmp_path / "home", proxy.endpoint)}
        process = subprocess.Popen([BIN / "longhaul", *words], env=env, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 60
        while proxy.bytes_sent("corpus/many/") < reached * total:
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.005)
        started = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until_gone(started)
        assert not (tmp_path / "store").exists()
        proxy.rules, before = [], proxy.bytes_sent("corpus/many/")
        run("longhaul", *words, env=environment(tmp_path / "home", proxy.endpoint))
        if reached >= 0.5:
            assert proxy.bytes_sent("corpus/many/") - before < total
    same_store(tmp_path / "store", many / "store")


def test_an_interrupted_build_ends_at_once(local, filled, tmp_path):
    """The end is immediate even when the store does not answer."""
    stall = Rule("stall", keys="corpus/corpus/", seconds=600)
    with FaultProxy(filled("rclone").endpoint, [stall]) as proxy:
        process = subprocess.Popen(
            [BIN / "longhaul", *map(str, words_of_build(
                local, inputs_of("lines", address("corpus")), tmp_path / "store"))],
            env={**os.environ, **environment(tmp_path / "home", proxy.endpoint)},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        limit = time.monotonic() + 30
        while not proxy.faults():
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.01)
        started = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
        assert process.returncode != 0 and "longhaul-objects has ended" not in said, said
        wait_until_gone(started)


# --- training that waits for a shard

@pytest.fixture(scope="module")
def parted(run, local, filled):
    """Puts the shards of a store into the bucket. Returns the names of their files of tokens, and
    the steps (8 sequences of 32 tokens) that need no later shard."""
    build(run, local, inputs_of("lines", local / "corpus"), local / "parted", "--part-size", "8kB")
    filled("rclone").put_folder("parted", local / "parted")
    found, tokens = [], 0
    for shard in json.loads((local / "parted/store.json").read_text())["shards"]:
        tokens += shard["tokens"]
        found.append((shard["token_file"]["name"], (tokens - 1) // (8 * 32)))
    assert len(found) >= 5 and found[1][1] >= 4
    return found


def words_of_training(tmp_path, name, root, steps):
    words = ["train", write_config(tmp_path, name)]
    for setting in (f'data.train=[{{ path = "{root}/parted" }}]', "data.shuffle=false",
                    f'data.cache="{tmp_path / "cache"}"', f"run.steps={steps}"):
        words += ["--set", setting]
    return words


@pytest.fixture(scope="module")
def saved(local, filled):
    """The sizes of the files of a save_to_disk directory at `corpus/even`, in order. The one at
    `corpus/uneven` has rows of two lengths."""
    chance = random.Random(7)
    for name, lengths in (("even", [32]), ("uneven", [32, 20])):
        rows = [[chance.randrange(300) for _ in range(lengths[n % len(lengths)])]
                for n in range(400)]
        table = {"number": list(range(400)), "input_ids": rows}
        Dataset.from_dict(table).save_to_disk(local / name, num_shards=5)
        filled("rclone").put_folder(name, local / name)
    return [path.stat().st_size for path in sorted((local / "even").glob("*.arrow"))]


def words_of_saved(tmp_path, name, root, entry, steps, *more):
    words = words_of_training(tmp_path, name, root, steps)
    for setting in (f'data.train=[{{ path = "{root}/{entry}" }}]', *more):
        words += ["--set", setting]
    return words


@pytest.mark.parametrize("ranks", [1, *later(2)])
def test_a_saved_directory_larger_than_the_cache_is_read_in_order(run, local, filled, saved,
                                                                  tmp_path, ranks):
    limit = 2 * max(saved) + 8000
    assert limit < sum(saved)
    steps = 60  # of 8 rows: it goes round
    with FaultProxy(filled("rclone").endpoint) as proxy:
        run("longhaul", *words_of_saved(tmp_path, "run", "s3://corpus", "even", steps,
                                        f"data.cache_gb={limit / 1e9:.12f}"), ranks=ranks,
            env=environment(tmp_path / "home", proxy.endpoint))
    kept = [path.stat().st_size for path in (tmp_path / "cache").rglob("*.arrow")]
    assert 0 < sum(kept) <= limit
    run("longhaul", *words_of_saved(tmp_path, "here", local, "even", steps), ranks=ranks)
    assert curve(tmp_path / "run") == curve(tmp_path / "here")
    states = [json.loads(next((tmp_path / name / "checkpoints/step_00000060").glob(
        "*state.json")).read_text()) for name in ("run", "here")]
    assert states[0]["batch_hash"] == states[1]["batch_hash"]


def test_a_saved_directory_of_uneven_rows_is_copied_whole(run, local, filled, saved, tmp_path):
    done = run("longhaul", *words_of_saved(tmp_path, "run", "s3://corpus", "uneven", 8),
               env=environment(tmp_path / "home", filled("rclone").endpoint))
    assert "copied whole" in done.stdout + done.stderr + (tmp_path / "run/log.txt").read_text()
    run("longhaul", *words_of_saved(tmp_path, "here", local, "uneven", 8))
    assert curve(tmp_path / "run") == curve(tmp_path / "here")


def test_an_object_comes_before_a_saved_directory_of_its_name(run, local, servers, saved, tmp_path):
    """rclone's server keeps files, so an object cannot have the name of a directory there; moto's
    can."""
    store = servers("moto")
    store.put_folder("both", local / "even")
    store.put("both", b"no data set")
    result = run("longhaul", *words_of_saved(tmp_path, "run", "s3://corpus", "both", 8),
                 check=False, env=environment(tmp_path / "home", store.endpoint))
    assert result.returncode == WRONG and "please report" not in result.stderr, result.stderr
    assert f"{address('both')}: a file; text becomes a token store" in result.stderr


@pytest.mark.parametrize("ranks", [1, *later(2)])
def test_a_wait_for_a_shard_is_counted_as_waiting_for_data(run, filled, parted, tmp_path, ranks):
    slow = Rule("slow", keys=f"corpus/parted/{parted[2][0]}", seconds=6, times=1)
    with FaultProxy(filled("rclone").endpoint, [slow]) as proxy:
        run("longhaul", *words_of_training(tmp_path, "run", "s3://corpus", parted[3][1]),
            ranks=ranks, env=environment(tmp_path / "home", proxy.endpoint))
        assert proxy.faults() == {"slow": 1}
    waits = {step: record["data_time_s"] for step, record in steps_of(tmp_path / "run").items()}
    # The next shard is fetched while the steps of the shard before it are done.
    assert waits[parted[1][1] + 1] > 0.5 and max(waits.values()) == waits[parted[1][1] + 1], waits
    told = json.loads(run("longhaul", "report", tmp_path / "run", "--json").stdout)["ledger"]
    assert told["by_class"]["data"] == pytest.approx(sum(waits.values()), abs=0.5)


def training_until(words, ranks, env, happened):
    """Starts training; returns its process one second after `happened` has become true."""
    command, variables = command_of("longhaul", words, ranks)
    process = subprocess.Popen(command, env={**variables, **env}, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 60
    while not happened():
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.02)
    time.sleep(1)
    return process


@pytest.mark.parametrize("ranks, request_to_end", [
    (1, "SIGTERM"), *later((1, "STOP"), (2, "SIGUSR1"), (2, "STOP"))])
def test_a_run_that_waits_for_a_shard_ends_soon_when_it_is_asked_to(
        run, local, filled, parted, tmp_path, ranks, request_to_end):
    (name, _), last, steps = parted[2], parted[1][1], parted[3][1]
    words = words_of_training(tmp_path, "run", "s3://corpus", steps)
    stall = Rule("stall", keys=f"corpus/parted/{name}", seconds=600)
    with FaultProxy(filled("rclone").endpoint, [stall]) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        metrics = tmp_path / "run/metrics.jsonl"
        process = training_until(words, ranks, env, lambda: (
            proxy.faults() and metrics.exists() and last in steps_of(tmp_path / "run")))
        started, begin = descendants(process.pid), time.monotonic()
        if request_to_end == "STOP":
            (tmp_path / "run/STOP").touch()
        else:
            process.send_signal(getattr(signal, request_to_end))
        code = process.wait(timeout=120)
        # A single request is given up after 30 s and repeated for 120 s, so the end did not wait
        # for it.
        assert time.monotonic() - begin < 28
        wait_until_gone(started)
        assert code == (79 if request_to_end == "STOP" else TEMPORARY)
        assert max(steps_of(tmp_path / "run")) == last
        assert (tmp_path / f"run/checkpoints/step_{last:08}/manifest.json").exists()
        proxy.rules = []
        run("longhaul", *words, ranks=ranks, env=env)
    run("longhaul", *words_of_training(tmp_path, "here", local, steps), ranks=ranks)
    assert curve(tmp_path / "run") == curve(tmp_path / "here")


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_that_goes_back_while_a_shard_comes_ends_soon_when_it_is_asked_to(
        run, filled, parted, tmp_path, ranks):
    (name, _), last, steps = parted[2], parted[1][1], parted[3][1]
    words = words_of_training(tmp_path, "run", "s3://corpus", steps)
    for setting in ('resilience.on_bad_step="rollback"', "resilience.rollback_steps=1",
                    f'debug.faults=[{{step = {last}, kind = "nonfinite_loss"}}]'):
        words += ["--set", setting]
    stall = Rule("stall", keys=f"corpus/parted/{name}", seconds=600)
    with FaultProxy(filled("rclone").endpoint, [stall]) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        events = tmp_path / "run/events.jsonl"
        process = training_until(words, ranks, env, lambda: (
            proxy.faults() and events.exists()
            and '"event":"rollback"' in events.read_text().replace(" ", "")))
        started, begin = descendants(process.pid), time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=60)
        assert time.monotonic() - begin < 20
        wait_until_gone(started)
        assert code == TEMPORARY and max(steps_of(tmp_path / "run")) == last
        proxy.rules = []
        run("longhaul", *words, ranks=ranks, env=env)
    assert max(steps_of(tmp_path / "run")) == steps
