"""The servers of objects and the proxy before them do what the other tests rely on."""

import os
import time

import botocore.exceptions
import pytest
from fault_proxy import ANSWERS, FaultProxy, Rule, Stalled, make_authority
from programs import later
from servers import BUCKET, client_of

DATA = os.urandom(300_000)
CUT = ("reset", "reset_in_body", "truncated", "longer", "stall")
SERVERS = ["rclone", *later("moto")]


def get(client, key="a/b.bin", **more):
    return client.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read()


@pytest.mark.parametrize("name", ["rclone", "moto"])
def test_a_server_keeps_objects(servers, name):
    store = servers(name)
    store.put("kept/b.bin", DATA)
    store.put("kept/a b+ü%.txt", b"text")
    assert store.sizes("kept/") == {"kept/b.bin": len(DATA), "kept/a b+ü%.txt": 4}
    assert store.get("kept/b.bin") == DATA and store.get("kept/a b+ü%.txt") == b"text"
    assert get(store.client, "kept/b.bin", Range="bytes=1000-1999") == DATA[1000:2000]
    before = store.version("kept/b.bin")
    store.put("kept/b.bin", DATA[:-1])
    assert store.version("kept/b.bin") != before
    # An upload that was begun but not ended is no object.
    store.begin_upload("kept/half.bin", DATA)
    assert store.uploads() == ["kept/half.bin"] and "kept/half.bin" not in store.keys()
    store.remove_all("kept/")
    assert store.keys("kept/") == []


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("tls", [False, True])
def test_a_fault_reaches_the_client_and_the_next_request_is_sound(servers, tmp_path, name, tls):
    store = servers(name)
    store.put("a/b.bin", DATA)
    authority, context = make_authority(tmp_path) if tls else (None, None)
    with FaultProxy(store.endpoint, tls=context) as proxy:
        client = client_of(proxy.endpoint, authority)
        for code in ANSWERS:
            proxy.rules = [Rule(code, nth=(1,))]
            with pytest.raises(botocore.exceptions.ClientError, match=code):
                get(client)
            assert get(client) == DATA
        for fault in CUT:
            proxy.rules = [Rule(fault, nth=(1,), seconds=0.2)]
            with pytest.raises((botocore.exceptions.HTTPClientError, OSError)):
                get(client)
            assert get(client) == DATA
        proxy.rules = [Rule("shorter", nth=(1,), bytes=10)]
        assert get(client) == DATA[:-10] and get(client) == DATA
        proxy.rules = [Rule("cut_upload", methods=("PUT",), bytes=1000)]
        with pytest.raises((botocore.exceptions.HTTPClientError, OSError)):
            client.put_object(Bucket=BUCKET, Key="a/cut", Body=DATA)
        assert "a/cut" not in store.keys()
        assert proxy.faults() == {name: 1 for name in (*ANSWERS, *CUT, "shorter", "cut_upload")}
        assert proxy.most_in_flight["GET"] == 1


def test_rules_take_what_they_say(store):
    store.put("a/b.bin", DATA)
    store.put("a/c.bin", DATA)

    def statuses(*rules, seed=1, key="a/b.bin"):
        with FaultProxy(store.endpoint, rules, seed) as proxy:
            client = client_of(proxy.endpoint)
            for _ in range(8):
                try:
                    get(client, key)
                except botocore.exceptions.ClientError:
                    pass
            return "".join("x" if r.fault else "." for r in proxy.requests)

    assert statuses(Rule("SlowDown", nth=(2, 5))) == ".x..x..."
    assert statuses(Rule("SlowDown", first=4)) == "...xxxxx"
    assert statuses(Rule("SlowDown", first=2, times=3)) == ".xxx...."
    assert statuses(Rule("SlowDown", keys="c.bin")) == "........"
    assert statuses(Rule("SlowDown", methods=("PUT",))) == "........"
    some = statuses(Rule("SlowDown", share=0.5))
    assert some == statuses(Rule("SlowDown", share=0.5)) and 0 < some.count("x") < 8


def test_an_object_is_replaced_behind_the_first_answer(store, proxy):
    store.put("a/b.bin", DATA)
    proxy.rules = [Rule("call", nth=(1,), call=lambda: store.put("a/b.bin", b"new"))]
    client = client_of(proxy.endpoint)
    assert get(client) == DATA
    assert get(client) == b"new"


def test_an_authority_that_is_not_trusted_ends_the_connection(store, tmp_path):
    _, context = make_authority(tmp_path / "one")
    other, _ = make_authority(tmp_path / "other")
    with FaultProxy(store.endpoint, tls=context) as proxy:
        with pytest.raises(botocore.exceptions.SSLError):
            get(client_of(proxy.endpoint, other))
        assert proxy.requests == []


def test_connections_to_a_port_that_says_nothing_are_counted():
    with Stalled() as silent:
        assert silent.connections == 0
        client = client_of(silent.endpoint, read_timeout=0.5)
        begin = time.monotonic()
        with pytest.raises(botocore.exceptions.HTTPClientError):
            client.list_objects_v2(Bucket=BUCKET)
        assert time.monotonic() - begin < 5 and silent.connections == 1
