"""A cluster that exists is asked before anything starts; what is not as it was said ends it there, in a sentence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from harness import matrix
from harness.errors import ConfigError, UsageError
from harness.systems import attached, etcd_attached, redis_attached
from harness.systems.attached import EndpointError
from harness.systems.base import Settings
from harness.systems.etcd import Etcd as System
from harness.systems.etcd_attached import Member
from harness.systems.redis_attached import Server
from harness.trial.attaching import offered
from harness.trial.config import from_mapping, resolve
from tests.attached import etcd
from tests.attached.anybody import answering
from tests.attached.etcd import PASSWORD, USER, Etcd

SETTINGS = Settings(2.0, 1, "etcd", attached=True)
PREFIX = "fencepost/0123456789ab"


def way_in(papers: Path, **others: Any) -> dict[str, Any]:
    return {"ca_file": str(papers / "ours.pem"), "user": USER, "password": PASSWORD, **others}


def examine(endpoints: list[str], options: dict[str, Any] | None = None, settings: Settings = SETTINGS) -> str:
    return System().examine(attached.access(endpoints, options or {}), settings, PREFIX).words


def refused(endpoints: list[str], options: dict[str, Any] | None = None, settings: Settings = SETTINGS) -> str:
    with pytest.raises(EndpointError) as caught:
        examine(endpoints, options, settings)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_cluster_is_found_and_left_as_it_was(guarded: Etcd, papers: Path) -> None:
    """With TLS and a user who may use fencepost/ alone: the version is told, and not one key is another than before."""
    before = guarded.contents()
    assert examine([guarded.endpoint], way_in(papers)).startswith("etcd 3.")
    assert guarded.contents() == before
    named = way_in(papers, server_name="etcd.example")
    assert examine([guarded.endpoint], named).startswith("etcd 3.")


def test_what_is_not_as_it_was_said(guarded: Etcd, plain: Etcd, papers: Path) -> None:
    """Each is told from the others, with what to do."""
    at = guarded.endpoint
    (nobody,) = etcd.free_ports(1)
    assert "can't be reached from this machine: Connection refused" in refused([f"127.0.0.1:{nobody}"])
    assert "can't be reached" in refused(["nowhere.invalid:2379"])
    assert f"{at} wants TLS" in refused([at])
    assert "doesn't answer in TLS" in refused([plain.endpoint], {"tls": True})
    assert "doesn't verify" in refused([at], way_in(papers, ca_file=str(papers / "other.pem")))
    assert "doesn't verify: Hostname mismatch" in refused([at], way_in(papers, server_name="elsewhere.example"))
    assert f"refuses the password of '{USER}'" in (said := refused([at], way_in(papers, password="wrong-Donkey-8")))
    assert "wrong-Donkey-8" not in said
    assert "refuses the password of 'nobody'" in refused([at], way_in(papers, user="nobody"))
    assert "wants a user and a password" in refused([at], {"ca_file": str(papers / "ours.pem")})
    assert "knows no users" in refused([plain.endpoint], {"user": USER, "password": PASSWORD})
    assert "grants a lease of 2 s where 1 s is asked for" in refused(
        [plain.endpoint], settings=Settings(1.0, 1, "etcd", attached=True)
    )


def test_a_user_who_may_not_use_our_keys(guarded: Etcd, papers: Path) -> None:
    """Permission is wanted for fencepost/ alone, and the error says so."""
    guarded.as_root("auth/user/add", {"name": "guest", "password": PASSWORD})
    assert "may not read and write keys below fencepost/" in refused([guarded.endpoint], way_in(papers, user="guest"))


def test_what_a_trial_has_left_is_removed_and_nothing_beside_it(guarded: Etcd, papers: Path) -> None:
    """Everything below its prefix, by the user who may not do more; not what only begins alike, nor another trial's."""
    before = guarded.contents()
    for key in (f"{PREFIX}/lock/1", f"{PREFIX}/lock/2", f"{PREFIX}", f"{PREFIX}0/lock/1", "fencepost/another/lock/1"):
        guarded.as_root("kv/put", {"key": etcd.b64(key), "value": etcd.b64("1")})
    access = attached.access([guarded.endpoint], way_in(papers))
    assert System().tidy(access, PREFIX) == 2
    left = set(guarded.contents()) - set(before)
    assert left == {PREFIX, f"{PREFIX}0/lock/1", "fencepost/another/lock/1"}
    for key in left:
        guarded.as_root("kv/deleterange", {"key": etcd.b64(key)})
    assert guarded.contents() == before


def test_what_cannot_be_removed_is_named(papers: Path) -> None:
    """The first endpoint that answers does; where none does the keys' end is said."""
    (nobody,) = etcd.free_ports(1)
    with pytest.raises(
        EndpointError, match=rf"keys below {PREFIX}/ may be left .*with them.: 127.0.0.1:{nobody} can't"
    ):
        System().tidy(attached.access([f"127.0.0.1:{nobody}"], {}), PREFIX)


def test_two_clusters_are_no_cluster(plain: Etcd, tmp_path: Path) -> None:
    """Whose endpoints are mixed up gets locks that know nothing of each other."""
    with etcd.running(tmp_path, words=("--initial-cluster-token", "another")) as other:
        assert "of different clusters" in refused([plain.endpoint, other.endpoint])


def test_a_client_without_the_certificate_that_is_wanted(papers: Path, tmp_path: Path) -> None:
    """It is named as such; with one that the servers trust all is well."""
    etcd.certificate(papers, "ours", "client", "DNS:client.example")
    tls = (papers / "server.pem", papers / "server.key")
    words = ("--client-cert-auth", "--trusted-ca-file", str(papers / "ours.pem"))
    both = {"cert_file": str(papers / "client.pem"), "key_file": str(papers / "client.key")}
    ca = {"ca_file": str(papers / "ours.pem")}
    with etcd.running(tmp_path, tls=tls, ca=papers / "ours.pem", words=words, client=both) as strict:
        assert "wants a client's certificate" in refused([strict.endpoint], ca)
        assert examine([strict.endpoint], {**ca, **both}).startswith("etcd 3.")


def reply(body: bytes, length: int | None = None) -> bytes:
    """An answer over HTTP, said to have this length."""
    head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("document", "options", "reason"),
    [
        (b"{}", {}, "doesn't answer as etcd does: KeyError: 'ID'"),
        (b'{"ID": "7", "TTL": "soon"}', {}, "doesn't answer as etcd does: ValueError"),
        (b'{"ID": "7", "TTL": "2", "header": {}}', {}, "doesn't answer as etcd does: KeyError: 'cluster_id'"),
        (b'{"ID": "7", "TTL": "2", "header": 1}', {}, "doesn't answer as etcd does: TypeError"),
        (b'{"ID": "7", "TTL": "nan", "header": {"cluster_id": "1"}}', {}, "grants a lease of nan s"),
        (b'{"token": null}', {"user": USER, "password": PASSWORD}, "answers without a token"),
    ],
)
def test_what_only_tells_a_version_as_etcd_does(document: bytes, options: dict[str, Any], reason: str) -> None:
    """A gateway, say, whose answers to all else make no sense: a sentence with its place, and not a traceback."""
    version = b'{"etcdserver": "3.5.16"}'
    with answering(lambda request: [reply(version if b"/version" in request else document)]) as endpoint:
        assert (said := refused([endpoint], options)).startswith(endpoint)
        assert reason in said


def test_an_answer_longer_than_memory() -> None:
    """Of which only the announcement comes, or more than anybody would say."""
    with answering(lambda _: [reply(b"x", 10**17)]) as endpoint:
        assert "doesn't answer as etcd does: disconnect: IncompleteRead" in refused([endpoint])
    with answering(lambda _: [reply(bytes(20 << 20), 10**17)]) as endpoint:
        assert "its answer is too long" in refused([endpoint])


@pytest.mark.parametrize("system", ["etcd", "redis"])
def test_an_answer_that_comes_byte_by_byte(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte is in time, and the whole of it would take for ever: there is a deadline for that too."""
    for module in (etcd_attached, redis_attached):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    over = threading.Event()

    def slowly(_: bytes) -> Iterator[bytes]:
        yield reply(b"", 10**6) if system == "etcd" else b"+"
        while not over.wait(0.02):
            yield b"x"

    with answering(slowly) as endpoint:
        access = attached.access([endpoint], {})
        asked = Member if system == "etcd" else Server
        try:
            with pytest.raises(EndpointError, match=r"no whole answer within 0\.20? s"):
                asked(access, access.endpoints[0]).ask("INFO")
        finally:
            over.set()


def test_another_system() -> None:
    """Whatever answers, it isn't etcd: here as Redis does to what is no command of its."""
    with answering(lambda _: [b"-ERR unknown command 'GET'\r\n"]) as endpoint:
        assert "doesn't answer as etcd does" in refused([endpoint])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("127.0.0.1", "is no endpoint"),
        ("127.0.0.1:0", "between 1 and 65535"),
        ("127.0.0.1:http", "is no endpoint"),
        pytest.param(f"127.0.0.1:{'9' * 5000}", "between 1 and 65535", id="a port of 5000 digits"),
        ("a..b:2379", "neither a name nor an address"),
        pytest.param(f"{'a' * 64}.example:2379", "neither a name nor an address", id="a label of 64 letters"),
        ("two words:2379", "neither a name nor an address"),
        ("a\nb:2379", "neither a name nor an address"),
        ("::1:2379", "is no endpoint"),
        ("https://127.0.0.1:2379", "without https://"),
        ("me:secret-Word-1@127.0.0.1:2379", "without a user"),
        ("", "is no endpoint"),
    ],
)
def test_what_is_no_endpoint(text: str, reason: str) -> None:
    """It is said what one looks like; a password in it isn't repeated."""
    with pytest.raises(UsageError, match=reason) as caught:
        attached.parse([text])
    assert "secret-Word-1" not in str(caught.value)


def test_a_key_with_a_passphrase_is_refused(papers: Path, tmp_path: Path) -> None:
    """In a sentence; nobody is asked for it on a terminal."""
    key = serialization.load_pem_private_key((papers / "server.key").read_bytes(), None)
    locked = tmp_path / "locked.key"
    how = serialization.BestAvailableEncryption(b"Donkey-8")
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
    with pytest.raises(UsageError, match=r"cert_file, key_file: .*the key has a passphrase"):
        attached.access(["a:1"], {"cert_file": str(papers / "server.pem"), "key_file": str(locked)})


def test_endpoints_of_both_families() -> None:
    """IPv6 stands in brackets, and comes out so again."""
    assert [str(each) for each in attached.parse(["[::1]:2379", "db.example:12379"])] == [
        "[::1]:2379",
        "db.example:12379",
    ]
    assert [str(each) for each in attached.parse(["bücher.example.:1", "☃:2"])] == ["bücher.example.:1", "☃:2"]


@pytest.mark.parametrize(
    ("keys", "key", "reason"),
    [
        ({"servers": 3}, "servers", "none is started at endpoints"),
        ({"images": {"etcd": "etcd:3"}}, "images.etcd", "none is started at endpoints"),
        ({"system_options": {"election_ms": 700}}, "system_options", "settings of servers of ours"),
        ({"client": "redlock"}, "client", "unknown client"),
        ({"client": "noop"}, "client", "no endpoints"),
        ({"system": "consul", "endpoint_options": {"user": "me"}}, "endpoint_options", "unknown .* 'user' .*, token"),
        ({"endpoint_options": {"token": "a-Token-1"}}, "endpoint_options", "unknown endpoint option 'token'"),
        (
            {"system": "consul", "system_options": {"lock_delay_seconds": 2.0, "raft_multiplier": 2}},
            "system_options",
            "raft_multiplier: settings of servers of ours, .*its lock client's are lock_delay_seconds, behavior",
        ),
        ({"system": "consul", "system_options": {"lock_delay_seconds": 99.0}}, "system_options", "between 0 and 60"),
        ({"fault": "kill-leader"}, "fault", "offered there: .*freeze-holder.*kill-holder.*none"),
        ({"fault": "freeze-n1"}, "fault", "it hits servers"),
        ({"fault": "partition-holder", "fault_options": {"away_from": "leader"}}, "fault", "asks who leads"),
        ({"endpoints": ["nowhere"]}, "endpoints", "is no endpoint"),
        ({"endpoints": ["a:1", "a:1"]}, "endpoints", "given twice"),
        ({"endpoints": ["a:1", "A:1"]}, "endpoints", "given twice"),
        ({"endpoint_options": {"server_name": ""}}, "endpoint_options", "'server_name' is empty"),
        ({"endpoint_options": {"ca_file": "~nobodys/ca.pem"}}, "endpoint_options", "ca_file: ~nobodys/ca.pem can't be"),
        ({"endpoint_options": {"ca_file": "a\0b"}}, "endpoint_options", "can't be read: embedded null"),
        ({"endpoint_options": {"ca_file": "/"}}, "endpoint_options", "ca_file: /: can't be read: Is a directory"),
        ({"endpoints": []}, "endpoint_options", "give endpoints beside them"),
        ({"endpoint_options": {"user": "me"}}, "endpoint_options", "user needs password"),
        ({"endpoint_options": {"colour": "red"}}, "endpoint_options", "unknown endpoint option 'colour'"),
        ({"endpoint_options": {"tls": "yes"}}, "endpoint_options", "must be true or false, not 'yes'"),
        (
            {"endpoint_options": {"user": 7, "password": PASSWORD}},
            "endpoint_options",
            r"'user' must be a text: it was read as a number; .* user='\"7\"' on a command line and user = \"7\" in",
        ),
        ({"endpoint_options": {"ca_file": True}}, "endpoint_options", r"read as true or false; .*ca_file='\"true\"'"),
        ({"endpoint_options": {"ca_file": "/nonexistent.pem"}}, "endpoint_options", "ca_file: /nonexistent.pem"),
        ({"endpoint_options": {"ca_file": "/etc/hostname"}}, "endpoint_options", "no certificate"),
        ({"endpoint_options": {"tls": False, "server_name": "a"}}, "endpoint_options", "tls is false"),
    ],
)
def test_what_makes_no_sense_there(keys: dict[str, Any], key: str, reason: str) -> None:
    """Nothing is asked for it, and nothing started: the key and the reason are said."""
    cell = {"system": "etcd", "endpoints": ["127.0.0.1:2379"], "endpoint_options": {"tls": False}, **keys}
    with pytest.raises(ConfigError, match=reason) as caught:
        resolve(from_mapping(cell))
    assert caught.value.key == key


def test_a_system_that_has_no_way_to_do_it_says_so() -> None:
    """In its own words, where it has some."""

    class Fixed:
        name = "fixed"

    class Spoken(Fixed):
        attaching = "its servers answer nobody"

    for kind, reason in (
        (Fixed, "its client and its checks know only clusters"),
        (Spoken, "its servers answer nobody"),
    ):
        system: Any = kind()
        said = attached.why_not(system)
        assert str(said).startswith("fixed can't be used by endpoints yet: ")
        assert reason in str(said)


def test_only_contenders_are_hit() -> None:
    """Every fault that is offered there resolves, and no other does."""
    names = offered()
    assert {"none", "freeze-holder", "freeze-waiter", "partition-holder", "kill-holder", "reset-holder"} <= set(names)
    assert not any(
        word in name for name in names for word in ("leader", "follower", "one", "all", "majority") if name != "none"
    )
    for name in names:
        resolve(from_mapping({"system": "etcd", "endpoints": ["127.0.0.1:2379"], "fault": name}))


def test_endpoints_are_an_axis(tmp_path: Path) -> None:
    """Each place is a cell with its name; what hits servers is left out there, and stays where they are ours."""
    path = tmp_path / "m.toml"
    path.write_text(
        """
        [axes]
        system = ["etcd"]
        endpoints = [[], ["127.0.0.1:1"], ["127.0.0.1:2", "127.0.0.1:3"]]
        fault = ["none", "kill-leader"]
        """
    )
    plan = matrix.load(path)
    assert [cell.slug() for cell in plan.cells] == [
        "etcd-none-guarded",
        "etcd-kill-leader-guarded",
        "etcd-none-at-127.0.0.1-1-guarded",
        "etcd-none-at-127.0.0.1-2-guarded",
    ]
    assert plan.cells[3].cell()["parameters"]["endpoints"] == "127.0.0.1:2, 127.0.0.1:3"
    assert ["what is offered there" in left.rule for left in plan.left_out] == [True, True]


def test_it_is_repeated_without_its_secrets() -> None:
    """The line `again:` says where, and how to get in by references alone."""
    config = resolve(
        from_mapping(
            {
                "system": "etcd",
                "endpoints": ["127.0.0.1:2379", "[::1]:2379"],
                "endpoint_options": {"tls": True, "user": USER, "password": PASSWORD},
                "seed": 1,
            }
        )
    )
    assert config.repeat_command() == (
        "fencepost run etcd --seed 1 --endpoints 127.0.0.1:2379,'[::1]:2379' --endpoint-option tls=true "
        f"--endpoint-option user={USER} --endpoint-option password=env:FENCEPOST_SECRET_PASSWORD"
    )
    assert config.variables() == ["FENCEPOST_SECRET_PASSWORD"]
    assert config.describe() == "etcd at 127.0.0.1:2379,[::1]:2379 x none, guarded"
