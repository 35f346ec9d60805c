"""What a system is configured with, and which options it takes: pure, from settings and addresses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness import registry
from harness.errors import UsageError
from harness.systems.base import Settings, System
from harness.systems.etcd import minimum_ttl_seconds
from harness.systems.redis_sentinel import RedisSentinel
from harness.systems.roles import services_of
from tests.systems.servers import Scripted

NAMES = registry.names("systems")
NODES = {f"n{number}": (f"192.0.2.{number}", f"2001:db8::{number}") for number in range(1, 6)}


def nodes(count: int) -> dict[str, tuple[str, ...]]:
    return dict(list(NODES.items())[:count])


def settings(system: System, ttl: float = 2.0, **options: object) -> Settings:
    return Settings(ttl, system.server_counts[0], f"image/{system.name}", options)


@pytest.fixture(params=NAMES)
def system(request: pytest.FixtureRequest) -> System:
    loaded: System = registry.load("systems", request.param)()
    return loaded


def test_every_size_gets_a_service_for_each_node(system: System) -> None:
    """A plan covers exactly the nodes, with the image that was asked for."""
    for count in system.server_counts:
        plan = services_of(system, settings(system), nodes(count), {})
        assert list(plan) == list(nodes(count))
        assert {spec.image for services in plan.values() for spec in services.values()} == {f"image/{system.name}"}


def test_the_client_is_told_all_servers_by_name(system: System) -> None:
    """Endpoints are plain JSON, in the order of the nodes, and the client that is named exists."""
    config = system.client_config(settings(system), nodes(system.server_counts[0]))
    assert json.loads(json.dumps(config)) == config
    assert config["endpoints"] == [[name, system.port] for name in nodes(system.server_counts[0])]
    assert system.client in registry.names("clients")


def test_what_decides_about_leases_is_recorded(system: System) -> None:
    """The record is plain JSON and says on which clock leases run."""
    recorded = system.recorded(settings(system))
    assert json.loads(json.dumps(recorded)) == recorded
    assert "lease_clock" in recorded


def test_an_unknown_option_is_refused_with_the_known_ones(system: System) -> None:
    """A typing error is told with what would be right."""
    with pytest.raises(UsageError, match=r"unknown system option 'colour' \(known: "):
        system.plan(settings(system, colour="red"), nodes(1))


@pytest.mark.parametrize(
    ("name", "option", "value", "words"),
    [
        ("etcd", "heartbeat_ms", "fast", "must be of type int"),
        ("etcd", "heartbeat_ms", True, "must be of type int"),
        ("etcd", "heartbeat_ms", 1, "between 10 and 5000"),
        ("etcd", "election_ms", 200, "5 heartbeats at least"),
        ("etcd", "election_ms", 5000, "no lease below 8 s"),
        ("zookeeper", "tick_ms", 1500, "a session lasts two ticks at least"),
        ("zookeeper", "sync_ticks", 1, "between 2 and 1000"),
        ("consul", "lock_delay_seconds", 61, "between 0 and 60"),
        ("consul", "behavior", "keep", "must be release or delete"),
        ("consul", "raft_multiplier", 0, "between 1 and 10"),
        ("redis", "persistence", "sometimes", "must be one of none, everysec, always"),
        ("redis-sentinel", "persistence", "sometimes", "must be one of none, everysec, always"),
        ("redis-sentinel", "wait", 3, "between 0 and 2 replicas"),
        ("redis-sentinel", "min_replicas_to_write", -1, "between 0 and 2 replicas"),
        ("redis-sentinel", "down_after_ms", 10, "between 100 and 600000 ms"),
        ("redis-sentinel", "failover_timeout_ms", 0, "between 500 and 3600000 ms, not 0"),
    ],
)
def test_a_bad_value_is_refused_with_the_option_and_the_reason(
    name: str, option: str, value: object, words: str
) -> None:
    """Before anything is started, the option is named with what would be right."""
    system = registry.load("systems", name)()
    with pytest.raises(UsageError, match=words):
        system.plan(settings(system, **{option: value}), nodes(system.server_counts[0]))


@pytest.mark.parametrize(
    ("heartbeat", "election", "seconds"), [(100, 1000, 2), (100, 600, 1), (500, 5000, 8), (50, 500, 1), (100, 700, 1)]
)
def test_etcd_raises_short_leases_to_this(heartbeat: int, election: int, seconds: int) -> None:
    """ceil(3 * ticks / 2 * heartbeat), as in etcd's server.go; 2 s with its defaults."""
    assert minimum_ttl_seconds(heartbeat, election) == seconds


def test_etcd_counts_leases_in_whole_seconds() -> None:
    """A ttl that etcd would round is refused, not rounded: the trial would judge by another promise."""
    system = registry.load("systems", "etcd")()
    with pytest.raises(UsageError, match="whole seconds"):
        system.plan(settings(system, ttl=2.5), nodes(3))


def test_consul_allows_the_ttl_that_the_contenders_ask_for() -> None:
    """session_ttl_min follows the ttl: its default of 10 s would refuse every short session."""
    system = registry.load("systems", "consul")()
    plan = system.plan(settings(system, ttl=2.5), nodes(3))
    for name, spec in plan.items():
        config = json.loads(spec.env["CONSUL_LOCAL_CONFIG"])
        assert config["session_ttl_min"] == "2500ms"
        assert config["bind_addr"] == NODES[name][0]
        assert len(config["retry_join"]) == 2


def test_consul_has_a_client_agent_beside_each_contender_where_it_is_asked_for() -> None:
    """It joins the servers, and takes what its contender asks at its own address; without the option there is none."""
    system: Any = registry.load("systems", "consul")()
    contenders = {"c0": ("192.0.2.70",), "c1": ("192.0.2.71",)}
    assert list(services_of(system, settings(system), nodes(3), contenders)) == ["n1", "n2", "n3"]
    asked = settings(system, client_agents=True)
    plan = services_of(system, asked, nodes(3), contenders)
    assert [list(plan[node]) for node in ("n1", "c0", "c1")] == [["consul"], ["client-agent"], ["client-agent"]]
    config = json.loads(plan["c1"]["client-agent"].env["CONSUL_LOCAL_CONFIG"])
    assert (config["server"], config["bind_addr"], config["node_name"]) == (False, "192.0.2.71", "c1")
    assert config["retry_join"] == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    assert system.client_config(asked, nodes(3))["endpoints"] == [["127.0.0.1", 8500]]
    assert system.terms(asked).hand_over_seconds > system.terms(settings(system)).hand_over_seconds


def test_zookeeper_grants_the_session_that_the_contenders_ask_for() -> None:
    """Two ticks are at most the ttl, and each server has a number of its own."""
    system = registry.load("systems", "zookeeper")()
    plan = system.plan(settings(system, ttl=1.0), nodes(3))
    assert [spec.env["ZOO_MY_ID"] for spec in plan.values()] == ["1", "2", "3"]
    for spec in plan.values():
        assert 2 * int(spec.env["ZOO_TICK_TIME"]) <= 1000


@pytest.mark.parametrize(("persistence", "word"), [("none", "no"), ("everysec", "everysec"), ("always", "always")])
def test_redis_persists_as_told(persistence: str, word: str) -> None:
    """The append-only file is off, or synced as the option says."""
    system = registry.load("systems", "redis")()
    command = system.plan(settings(system, persistence=persistence), nodes(1))["n1"].command
    assert word in command


def test_a_password_of_redis_is_on_no_command_line() -> None:
    """`ps` and `docker inspect` show those to everybody; it stands in a file of its configuration."""
    system = registry.load("systems", "redis")()
    secret = 'Pw1 "\\ü'
    spec = system.plan(settings(system, password=secret), nodes(1))["n1"]
    assert secret not in " ".join(spec.command)
    (path,) = spec.files
    assert spec.command[:2] == ("redis-server", path)
    escaped = "".join(f"\\x{byte:02x}" for byte in secret.encode())
    assert spec.files[path].decode() == f'requirepass "{escaped}"\n'
    assert system.client_config(settings(system, password=secret), nodes(1))["password"] == secret
    plain = system.plan(settings(system), nodes(1))["n1"]
    assert not plain.files
    assert plain.command[1].startswith("--")


def test_a_redis_with_a_password_is_asked_after_a_login() -> None:
    """What it answers comes behind the login's OK; a login that is refused is the answer."""
    system = registry.load("systems", "redis")()
    right = Scripted("n1", tcp={b"AUTH ": b"+OK\r\n+OK\r\n+OK\r\n"}, options={"password": "Ab3-right"})
    wrong = Scripted("n1", tcp={b"AUTH ": b"-WRONGPASS invalid\r\n-NOAUTH\r\n"}, options={"password": "Ab3-wrong"})
    asked = Scripted("n1", tcp={b"AUTH ": b"+OK\r\n$19\r\nredis_version:8.0.2\r\n"}, options={"password": "Ab3-asked"})
    assert system.healthy([right]) == (True, "n1: +OK")
    assert system.healthy([wrong]) == (False, "n1: -WRONGPASS invalid")
    assert system.version(asked) == "8.0.2"


def test_sentinels_know_all_from_the_start_and_a_password_stands_in_no_command() -> None:
    """Two services a node, each with the configuration that it goes on with; the first node begins as the primary."""
    plan = RedisSentinel().plan(settings(RedisSentinel(), password="hush", min_replicas_to_write=1), nodes(3))
    redis, sentinel = ({name: specs[number] for name, specs in plan.items()} for number in (0, 1))
    configured = {name: spec.files["/etc/fencepost/redis.conf"].decode() for name, spec in redis.items()}
    assert [("replicaof 192.0.2.1 6379" in configured[name]) for name in ("n1", "n2", "n3")] == [False, True, True]
    assert all("min-replicas-to-write 1" in text and "masterauth" in text for text in configured.values())
    second = sentinel["n2"].files["/etc/fencepost/sentinel.conf"].decode()
    assert "sentinel monitor fencepost 192.0.2.1 6379 2" in second
    assert "sentinel down-after-milliseconds fencepost 1000" in second, "half the ttl"
    assert RedisSentinel().recorded(settings(RedisSentinel(), ttl=3600))["down_after_ms"] == 600_000, "or the most"
    ids = {line.split()[2] for line in second.splitlines() if line.startswith("sentinel myid")}
    others = {line.split()[-1] for line in second.splitlines() if line.startswith("sentinel known-sentinel")}
    assert (len(ids), len(others), ids & others) == (1, 2, set())
    commands = [word for specs in plan.values() for spec in specs for word in spec.command]
    assert not any("hush" in word or "\\x68" in word for word in commands)
