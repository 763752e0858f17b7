"""Single requests of longhaul-objects to both servers with every fault. A fault that passes costs a
retry, a fault that stays is named, and no byte is read or written wrongly."""

import collections
import concurrent.futures
import os
import subprocess
import time

import pytest
from fault_proxy import ANSWERS, ELSEWHERE, FaultProxy, Rule, Stalled, error_text
from programs import BIN, later, split
from servers import ACCESS_KEY, REGION, SECRET_KEY, environment

WRONG, TEMPORARY = 78, 75
PATIENCE = 2
PASSING = ["SlowDown", "InternalError", "RequestTimeTooSkewed", "reset", "reset_in_body",
           "truncated", "longer", "shorter", "whole", "RequestTimeout", "ExpiredToken"]
# Faults that stay: the exit code, and words of which the message must have one.
STAYING = {
    "SlowDown": (TEMPORARY, ["later"]), "InternalError": (TEMPORARY, ["later"]),
    "ExpiredToken": (TEMPORARY, ["expired"]), "RequestTimeTooSkewed": (WRONG, ["clock"]),
    "AccessDenied": (WRONG, ["credentials"]),
    "InvalidAccessKeyId": (WRONG, ["AWS_ACCESS_KEY_ID", "credentials"]),
    "NoSuchBucket": (WRONG, ["bucket"]), "reset": (TEMPORARY, ["AWS_ENDPOINT_URL_S3"]),
    "truncated": (TEMPORARY, ["AWS_ENDPOINT_URL_S3", "later"]), "shorter": (TEMPORARY, ["later"]),
}
DATA = os.urandom(3 << 20)
PLACE = "s3://corpus/requests/b.bin"
SERVERS = ["rclone", *later("moto")]


class Tool:
    """Runs longhaul_objects_tool with a proxy before the store."""

    def __init__(self, store, proxy, folder):
        self.store, self.proxy, self.folder = store, proxy, folder
        self.env = {**os.environ, **environment(folder / "home", proxy.endpoint,
                                                patience=PATIENCE)}
        store.put("requests/b.bin", DATA)
        (folder / "file").write_bytes(DATA)

    def __call__(self, *arguments, seconds=PATIENCE + 12):
        begin = time.monotonic()
        result = subprocess.run([BIN / "longhaul_objects_tool", *map(str, arguments)],
                                env=self.env, capture_output=True, text=True, timeout=100)
        assert time.monotonic() - begin < seconds
        assert SECRET_KEY not in result.stdout + result.stderr
        return result

    def read(self, **limit):
        """Reads in pieces by two threads; the last line has the counts."""
        return self("read", PLACE, 2, 1 << 20, 1, **limit)


def retries(result):
    words = result.stdout.split()
    return int(words[words.index("retries") + 1])


@pytest.fixture
def tool(servers, tmp_path, request):
    name = request.node.callspec.params.get("server", "rclone") if hasattr(
        request.node, "callspec") else "rclone"
    with FaultProxy(servers(name).endpoint) as proxy:
        yield Tool(servers(name), proxy, tmp_path)


@pytest.fixture(scope="module")
def sound(servers, tmp_path_factory):
    """The hash of the data when it is read without a fault."""
    with FaultProxy(servers("rclone").endpoint) as proxy:
        result = Tool(servers("rclone"), proxy, tmp_path_factory.mktemp("sound")).read()
    assert result.returncode == 0 and retries(result) == 0, result.stderr
    return result.stdout.split()[0]


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("server", SERVERS)
def test_a_read_with_a_fault_that_passes(tool, sound, server, fault):
    if (server, fault) == ("rclone", "whole"):
        pytest.skip("rclone refuses a request that has lost a signed header")
    tool.proxy.rules = [Rule(fault, times=2, bytes=100)]
    result = tool.read()
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[0] == sound
    assert tool.proxy.faults() == {fault: 2}
    # libcurl itself repeats a request where a kept connection is reset.
    assert fault == "reset" or retries(result) >= 1


@pytest.mark.parametrize("methods", [("GET",), ("GET", "HEAD")])
@pytest.mark.parametrize("fault", split(STAYING, [
    "SlowDown", "ExpiredToken", "RequestTimeTooSkewed", "NoSuchBucket", "shorter"]))
@pytest.mark.parametrize("server", SERVERS)
def test_a_read_with_a_fault_that_stays(tool, server, fault, methods):
    """The answer to a HEAD has no text that could say why."""
    if fault not in ANSWERS and "HEAD" in methods:
        pytest.skip("the answer to a HEAD has no body to cut")
    code, words = STAYING[fault]
    tool.proxy.rules = [Rule(fault, methods=methods, first=2)]
    result = tool.read()
    assert result.returncode == code, (result.returncode, result.stderr)
    assert "s3://corpus" in result.stderr
    assert any(word in result.stderr for word in words), result.stderr
    assert len(tool.proxy.requests) < (40 if code == TEMPORARY else 16)


@pytest.mark.parametrize("beside", [2, 10, *later(-40, 0, 200)])
def test_an_error_is_told_whatever_stands_behind_its_text(tool, beside):
    """The client reads an error's text into the memory of the range, where other bytes may follow
    it."""
    for code in ("ExpiredToken", "RequestTimeout", "RequestTimeTooSkewed"):
        key = f"requests/{code}{beside}.bin"
        data = os.urandom(len(error_text(code, ANSWERS[code][1], f"corpus/{key}")) + beside)
        tool.store.put(key, data)
        tool.proxy.rules = [Rule(code, keys=key, times=1)]
        back = tool.folder / f"{code}.back"
        result = tool("fetch", f"s3://corpus/{key}", back)
        assert result.returncode == 0, result.stderr
        assert back.read_bytes() == data and tool.proxy.faults()[code] == 1


def test_credentials_that_expired_are_taken_anew_when_they_come(tool):
    """The file of the keys gets new keys when the old ones have been refused several times."""
    place = tool.folder / "home/.aws/credentials"
    place.parent.mkdir()
    write = "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n".format
    place.write_text(write("OLDKEY", "old-secret"))
    del tool.env["AWS_ACCESS_KEY_ID"], tool.env["AWS_SECRET_ACCESS_KEY"]
    tool.env["LONGHAUL_OBJECTS_PATIENCE"] = "60"

    def renew():
        if len(tool.proxy.requests) > 6:
            place.write_text(write(ACCESS_KEY, SECRET_KEY))
    tool.proxy.rules = [Rule("ExpiredToken", methods=("GET", "HEAD"), signer="OLDKEY", call=renew)]
    result = tool.read(seconds=60)
    assert result.returncode == 0 and retries(result) >= 2, result.stderr
    assert tool.proxy.faults()["ExpiredToken"] > 6


@pytest.mark.parametrize("command", ["look", "list", *later("read")])
def test_a_bucket_of_another_region_is_told_at_once_with_both(tool, command):
    tool.proxy.rules = [Rule("elsewhere", methods=("GET", "HEAD"))]
    result = tool.read() if command == "read" else tool(command, PLACE)
    assert result.returncode == WRONG, (result.returncode, result.stderr)
    for word in (REGION, ELSEWHERE, "AWS_REGION"):
        assert word in result.stderr
    assert len(tool.proxy.requests) < 6


@pytest.mark.parametrize("server", ["rclone", *later("moto")])
def test_what_came_in_wrong_is_not_kept(tool, server):
    tool.proxy.rules = [Rule("flip", times=2)]
    result = tool("fetch", PLACE, tool.folder / "back")
    assert result.returncode == 0 and (tool.folder / "back").read_bytes() == DATA, result.stderr
    assert retries(result) == 2
    tool.store.put("requests/text", b"of a manifest")
    tool.proxy.rules = [Rule("flip", times=1)]
    assert tool("text", "s3://corpus/requests/text").stdout.startswith("of a manifest\n")


def test_another_object_in_the_place_of_one_is_refused_unless_etags_say_nothing(tool):
    other = DATA[::-1]
    tool.store.put("requests/beside", b"1")
    tool.proxy.rules = [Rule("other", keys="b.bin", content=other)]
    result = tool("fetch", PLACE, tool.folder / "back")
    assert result.returncode == WRONG and PLACE in result.stderr, result.stderr
    assert "LONGHAUL_OBJECTS_ETAGS" in result.stderr and not (tool.folder / "back").exists()
    tool.env["LONGHAUL_OBJECTS_ETAGS"] = "opaque"
    assert tool("fetch", PLACE, tool.folder / "back").returncode == 0
    assert (tool.folder / "back").read_bytes() == other


@pytest.mark.parametrize("server", ["rclone", *later("moto")])
def test_etags_that_are_no_md5s_are_found_out_from_objects_beside(tool, server):
    """Nothing shows it where no object lies beside this one, or where the bytes are those of the
    object beside it."""
    opaque = Rule("opaque", methods=("GET", "HEAD"))
    for name in ("a", "b", "c"):
        tool.store.put(f"strange/{name}", name.encode() * 1000)
    tool.proxy.rules = [opaque]
    copied = tool("copy", "s3://corpus/strange", tool.folder / "copies", 1 << 30)
    assert copied.returncode == 0, copied.stderr
    assert [path.read_text() for path in sorted((tool.folder / "copies").rglob("strange/?"))] == [
        name * 1000 for name in "abc"]
    assert copied.stderr.count("its ETags are no MD5s") == 1, copied.stderr
    tool.env["LONGHAUL_OBJECTS_ETAGS"] = "md5"
    assert tool("fetch", "s3://corpus/strange/a", tool.folder / "back").returncode == WRONG
    del tool.env["LONGHAUL_OBJECTS_ETAGS"]
    tool.store.put("strange/alone/a", b"a" * 1000)
    assert tool("fetch", "s3://corpus/strange/alone/a", tool.folder / "back").returncode == WRONG
    # Two objects are in each other's place. Their ETags are MD5s, though neither fits its bytes.
    tool.store.remove("strange/c")
    tool.proxy.rules = [Rule("other", keys="strange/a", content=b"b" * 1000),
                        Rule("other", keys="strange/b", content=b"a" * 1000)]
    result = tool("fetch", "s3://corpus/strange/a", tool.folder / "back")
    assert result.returncode == WRONG and not (tool.folder / "back").exists(), result.stderr


@pytest.mark.parametrize("fault", ["SlowDown", "reset", "cut_upload", *later("InternalError")])
@pytest.mark.parametrize("server", SERVERS)
def test_a_put_with_a_fault_that_passes(tool, server, fault):
    tool.proxy.rules = [Rule(fault, methods=("PUT", "POST"), times=1)]
    result = tool("put", tool.folder / "file", "s3://corpus/requests/new.bin")
    assert result.returncode == 0, result.stderr
    assert tool.store.get("requests/new.bin") == DATA
    tool.store.remove("requests/new.bin")


@pytest.mark.parametrize("size", [0, 1, *later(5 << 20, 40_000_001)])
@pytest.mark.parametrize("server", ["rclone", "moto"])
def test_what_is_put_is_what_is_fetched(tool, server, size):
    data = os.urandom(size)
    (tool.folder / "some").write_bytes(data)
    there = "s3://corpus/requests/a b+ü%.bin"
    sent = tool("put", tool.folder / "some", there)
    assert tool.store.get("requests/a b+ü%.bin") == data, sent.stderr
    fetched = tool("fetch", there, tool.folder / "back")
    assert (tool.folder / "back").read_bytes() == data, fetched.stderr
    assert sent.stdout.split()[0] == fetched.stdout.split()[0]
    assert str(size) in tool("look", there).stdout
    tool("remove", there)
    assert "requests/a b+ü%.bin" not in tool.store.keys()


@pytest.mark.parametrize("fault", ["truncated", *later("shorter", "longer", "reset_in_body",
                                                       "InternalError")])
@pytest.mark.parametrize("server", SERVERS)
def test_a_listing_with_a_fault_that_passes(tool, server, fault):
    whole = tool("list", "s3://corpus/requests").stdout.splitlines()
    assert any("requests/b.bin" in line for line in whole), whole
    tool.proxy.rules = [Rule(fault, query="list-type", times=2, bytes=30)]
    result = tool("list", "s3://corpus/requests")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[:-1] == whole[:-1]
    assert retries(result) > 0


@pytest.mark.parametrize("patience", ["5s", "abc"])
def test_a_patience_that_is_no_number_is_refused(tool, patience):
    tool.env["LONGHAUL_OBJECTS_PATIENCE"] = patience
    result = tool("look", PLACE)
    assert result.returncode == WRONG and not tool.proxy.requests, result.stderr
    assert f"LONGHAUL_OBJECTS_PATIENCE is '{patience}'" in result.stderr


@pytest.mark.soak
@pytest.mark.parametrize("command", ["look", "list"])
def test_a_store_that_says_nothing_takes_one_request(tool, command):
    """The request is given up after 30 s, and then the program's patience is over."""
    with Stalled() as nobody:
        tool.env["AWS_ENDPOINT_URL_S3"] = nobody.endpoint
        result = tool(command, PLACE, seconds=90)
    assert result.returncode == TEMPORARY, result.stderr


def denied(**what):
    return Rule("AccessDenied", methods=("GET", "HEAD"), **what)


def test_only_what_is_needed_is_asked_for(tool):
    """A user may have the fewest rights with which the requests work."""
    tool.proxy.rules = [denied(keys="^corpus/?$", query="^(?!list-type)")]
    assert PLACE in tool("list", "s3://corpus/requests").stdout
    empty = tool("list", "s3://corpus/requests/nothing/here")
    assert empty.returncode == 0 and "s3://" not in empty.stdout, empty.stderr
    tool.proxy.requests.clear()
    tool("list", "s3://corpus/requests")
    assert not [r for r in tool.proxy.requests if r.method == "HEAD" and "/" not in r.path[:-1]]
    absent = tool("list", "s3://absent/requests")
    assert absent.returncode == WRONG and "bucket" in absent.stderr, absent.stderr
    tool.proxy.rules = [denied(query="list-type")]
    copied = tool("copy", PLACE, tool.folder / "copies", 1 << 30)
    assert copied.returncode == 0, copied.stderr


@pytest.mark.parametrize("server", ["moto"])
def test_keys_that_are_no_paths_are_passed_over(tool, server):
    """A client reads the key "a/../b" as "b", so the program may not even remove such a key."""
    odd = ["odd//a", "odd/./b", "odd/below/../../kept"]
    for name in [*odd, "odd/c", "kept"]:
        tool.store.put(name, b"1")
    copied = tool("copy", "s3://corpus/odd", tool.folder / "copies", 1 << 30)
    assert copied.returncode == 0, copied.stderr
    assert "passed over 3 objects" in copied.stdout and "s3://corpus/odd/" in copied.stdout
    assert [path.name for path in (tool.folder / "copies").rglob("content/odd/*")] == ["c"]
    assert tool("remove_all", "s3://corpus/odd").returncode == 0
    assert tool.store.keys("odd") == sorted(odd) and "kept" in tool.store.keys()
    for name in [*odd, "kept"]:
        tool.store.remove(name)
    for name, word in (("even/a", "lies below"), ("even/" + 256 * "n", "256 bytes")):
        tool.store.put(name, b"1")
        tool.store.put("even/a/b", b"1")
        result = tool("copy", "s3://corpus/even", tool.folder / "copies", 1 << 30)
        assert result.returncode == WRONG and "s3://corpus/even/" in result.stderr, result.stderr
        assert word in result.stderr and not list((tool.folder / "copies").glob("*.part"))
        tool.store.remove(name)


ODD = "gone b+e=%20ü&'(!~/lö w#:.;@,"


@pytest.mark.parametrize("server, place", [
    ("rclone", ODD), ("moto", ODD), *later(
        ("rclone", "gone"), ("moto", "gone"), ("rclone", "gone/below"), ("moto", "gone/below"))])
def test_a_removal_touches_nothing_beside_it(tool, server, place):
    """rclone's server keeps a directory as a file if a client makes one."""
    names = {f"{place}/{name}" for name in ("a", "b", "c", "d/e")} | {"gone beside"}
    for name in names:
        tool.store.put(name, b"1")
    for name in (f"{place}/a", f"{place}/b"):
        assert tool("remove", f"s3://corpus/{name}").returncode == 0
        names.remove(name)
        assert names <= set(tool.store.keys("gone")), (name, tool.store.keys("gone"))
    made = [request.path for request in tool.proxy.requests if request.method == "PUT"]
    assert not made, made
    done = tool("remove_all", f"s3://corpus/{place}")
    assert done.returncode == 0, done.stderr
    assert [key for key, size in tool.store.sizes("gone").items() if size > 0] == ["gone beside"]
    tool.store.remove("gone beside")


@pytest.mark.parametrize("fault", [None, "truncated", *later("shorter", "reset_in_body")])
@pytest.mark.parametrize("server", SERVERS)
def test_bytes_in_shared_memory_are_those_of_the_object(tool, sound, server, fault):
    tool.proxy.rules = [Rule(fault, first=2, times=1)] if fault else []
    shared = tool("read_shared", PLACE, 3, 700_000, 4)
    assert shared.returncode == 0, shared.stderr
    assert shared.stdout.split()[0] == sound
    assert (retries(shared) > 0) == (fault is not None)


def test_an_upload_that_is_cut_each_time_leaves_no_object(tool):
    tool.proxy.rules = [Rule("cut_upload", methods=("PUT", "POST"), bytes=100_000)]
    result = tool("put", tool.folder / "file", "s3://corpus/requests/new.bin")
    assert result.returncode == TEMPORARY, result.stderr
    assert "requests/new.bin" not in tool.store.keys()


@pytest.mark.parametrize("nth", [1, *later(2, 3)])
@pytest.mark.parametrize("server", ["rclone", "moto"])
def test_an_object_that_is_replaced_is_found(tool, server, nth):
    """rclone's server ignores If-Match, and moto does not."""
    tool.proxy.rules = [Rule("call", nth=(nth,), call=lambda: tool.store.put(
        "requests/b.bin", DATA[::-1]))]
    for words in (["read", PLACE, 2, 1 << 20, 1], ["fetch", PLACE, tool.folder / "back"]):
        tool.store.put("requests/b.bin", DATA)
        tool.proxy.rules[0].matched = 0
        result = tool(*words)
        if "call" in tool.proxy.faults():
            assert result.returncode == WRONG, (result.returncode, result.stderr)
            assert PLACE in result.stderr and "replaced" in result.stderr
            assert not (tool.folder / "back").exists()
            tool.proxy.requests.clear()


@pytest.mark.parametrize("server", ["moto"])
def test_an_object_that_is_gone_in_the_middle(tool, server):
    """rclone's server may leave requests unanswered then, which is another fault."""
    tool.proxy.rules = [Rule("call", nth=(1,), call=lambda: tool.store.remove("requests/b.bin"))]
    result = tool.read()
    assert result.returncode == WRONG and PLACE in result.stderr, result.stderr
    assert "not there" in result.stderr or "was removed" in result.stderr


@pytest.mark.parametrize("case", ["secret", "none", *later("access")])
def test_keys_that_do_not_open_the_store(tool, case):
    changes = {"secret": {"AWS_SECRET_ACCESS_KEY": "another-secret"},
               "access": {"AWS_ACCESS_KEY_ID": "NOBODY"}, "none": {}}[case]
    if case == "none":
        del tool.env["AWS_SECRET_ACCESS_KEY"], tool.env["AWS_ACCESS_KEY_ID"]
    tool.env.update(changes)
    for command in ("look", "list"):
        result = tool(command, PLACE)
        assert result.returncode == WRONG, (result.returncode, result.stderr)
        assert "credentials" in result.stderr or "AWS_" in result.stderr, result.stderr
        assert "another-secret" not in result.stderr + result.stdout


@pytest.mark.parametrize("server", SERVERS)
def test_a_long_list_in_several_answers(tool, server):
    tool.store.put("requests/many/0000", b"x")  # rclone fails where two make a directory
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: tool.store.put(f"requests/many/{number:04}", b"x"),
                      range(1003)))
    listed = tool("list", "s3://corpus/requests/many").stdout
    assert [line.split()[0].removeprefix("s3://corpus/") for line in listed.splitlines()
            if line.startswith("s3://")] == tool.store.keys("requests/many/")
    assert tool.proxy.count("GET") > 1
    # The program stops asking a store that answers with the same page again and again.
    tool.proxy.rules = [Rule("again", query="list-type")]
    endless = tool("list", "s3://corpus/requests/many")
    assert endless.returncode == TEMPORARY and "twice in one listing" in endless.stderr
    assert tool.proxy.faults()["again"] < 40
    tool.proxy.requests.clear()
    # A listing that has taken longer than the program's patience is begun once more.
    tool.proxy.rules = [Rule("slow", query="list-type", seconds=PATIENCE + 1, times=1),
                        Rule("truncated", query="list-type", times=1, bytes=30)]
    again = tool("list", "s3://corpus/requests/many", seconds=90)
    assert tool.proxy.faults() == {"slow": 1, "truncated": 1}
    assert again.stdout.splitlines()[:-1] == listed.splitlines()[:-1], again.stderr


@pytest.mark.parametrize("count", [40, *later(1003)])
def test_a_copy_takes_three_requests_for_a_small_object(tool, count):
    """A copy of a small object takes one GET and two HEADs, which show that the object has stayed
    the same. One range in 256 ends with the byte that a cut-off body would leave, and is asked for
    again."""
    for number in range(count):
        tool.store.put(f"small/{count}/{number:04}", b"x")
    tool.proxy.requests.clear()
    copied = tool("copy", f"s3://corpus/small/{count}", tool.folder / "copies", 1 << 30, seconds=250)
    assert copied.returncode == 0, copied.stderr
    asked = collections.Counter((r.method, r.path) for r in tool.proxy.requests
                                if f"small/{count}/" in r.path)
    assert len(asked) == 2 * count, asked
    heads, gets = ([times for (method, _), times in asked.items() if method == which]
                   for which in ("HEAD", "GET"))
    assert set(heads) == {2} and set(gets) <= {1, 2}, asked
    assert sum(gets) <= count * 1.1, asked
    assert retries(copied) == 0


@pytest.mark.parametrize("seed", later(*range(10)))
def test_any_faults_at_any_time(tool, sound, seed):
    with FaultProxy(tool.store.endpoint, [
            Rule(fault, methods=("GET", "HEAD", "PUT"), share=0.08, bytes=100)
            for fault in PASSING if fault not in ("whole", "RequestTimeTooSkewed")], seed) as proxy:
        tool.env.update(environment(tool.folder / "home", proxy.endpoint))
        tool.env["LONGHAUL_OBJECTS_PATIENCE"] = "60"
        for _ in range(4):
            result = subprocess.run([BIN / "longhaul_objects_tool", "read", PLACE, "4", "262144",
                                     "2"], env=tool.env, capture_output=True, text=True,
                                    timeout=100)
            assert result.returncode == 0 and result.stdout.split()[0] == sound, result.stderr
            result = subprocess.run([BIN / "longhaul_objects_tool", "put", tool.folder / "file",
                                     "s3://corpus/requests/new.bin"], env=tool.env,
                                    capture_output=True, text=True, timeout=100)
            assert result.returncode == 0, result.stderr
            assert tool.store.get("requests/new.bin") == DATA
