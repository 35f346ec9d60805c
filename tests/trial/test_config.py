"""What a user can ask for, and the words when it can't be had: each names the key and the reason."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from click.testing import CliRunner

from harness import registry
from harness.cli import cli
from harness.commands.options import folder_name
from harness.errors import ConfigError, UsageError
from harness.images import why_not
from harness.trial.config import TrialConfig, from_mapping, resolve


def test_a_folder_s_name_is_never_too_long() -> None:
    """However many options tell a cell from others: the time comes before it, and the whole is a name for a folder."""
    options = {"min_replicas_to_write": 1, "wait": 1, "failover_timeout_ms": 3000}
    config = TrialConfig(system="redis-sentinel", fault="partition-primary", system_options=options)
    assert len(folder_name(f"20260101T000000-{config.slug()}")) <= 100


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"system": "etcd", "fault": "kill-primary"}, r"etcd has no role 'primary' \(its roles: leader, follower\)"),
        ({"system": "etcd", "fault": "kill-primari"}, r"unknown target 'primari' of kill; did you mean kill-primary\?"),
        ({"system": "redis-sentinel", "fault": "reset-primary"}, "unknown target 'primary' of reset"),
        (
            {"system": "redis-sentinel", "fault": "freeze-primary", "fault_options": {"service": "pgbouncer"}},
            r"fault_options.service: there is no service 'pgbouncer' on a server \(there: redis, sentinel, or all\)",
        ),
        (
            {"system": "redis-sentinel", "fault": "kill-n2", "fault_options": {"service": "proxy"}},
            r"there is no service 'proxy' on n2 \(there: redis, sentinel, or all\)",
        ),
        (
            {"system": "redis-sentinel", "fault": "kill-holder", "fault_options": {"service": "redis"}},
            "there is no service beside a contender",
        ),
        (
            {"system": "redis-sentinel", "fault": "partition-primary", "fault_options": {"service": "redis"}},
            "partition: unknown parameter 'service'",
        ),
        (
            {"system": "etcd", "fault": "freeze-leader", "fault_options": {"service": 1}},
            "freeze: parameter 'service' must be the name of a service, or 'all', not 1",
        ),
        (
            {"system": "etcd", "fault": "stop-leader", "fault_options": {"down": "now"}},
            "stop: parameter 'down' must be",
        ),
    ],
)
def test_a_role_or_a_service_that_is_not_there_is_told_before_anything_starts(
    asked: dict[str, Any], words: str
) -> None:
    """With those that there are."""
    with pytest.raises(ConfigError, match=words):
        resolve(from_mapping(asked))


def test_resolving_fills_in_what_follows() -> None:
    """Times follow from the terms of the system, servers from the system, and a seed is drawn and recorded."""
    config = resolve(from_mapping({"system": "etcd", "ttl": 3.0, "fault": "kill-leader"}))
    assert (config.servers, config.fault_on, config.fault_off, config.progress_bound) == (3, 6.0, 4.5, 9.1)
    assert isinstance(config.seed, int)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"systm": "etcd"}, "systm: unknown key; did you mean 'system'?"),
        ({"fault": "none"}, "system: Object missing required field"),
        ({"system": "etcd", "ttl": "long"}, r"ttl: Expected `float`, got `str`"),
        ({"system": "etdc"}, "system: unknown system 'etdc'; did you mean 'etcd'?"),
        ({"system": "etcd", "servers": 4}, "servers: etcd runs with 2, 3 or 5 servers, not 4"),
        ({"system": "etcd", "contenders": 1}, "contenders: must lie between 2 and 50"),
        ({"system": "etcd", "ttl": float("nan")}, "ttl: must lie between"),
        ({"system": "etcd", "ttl": 2.5}, "ttl: etcd grants leases in steps of 1 s"),
        ({"system": "etcd", "system_options": {"warp": 9}}, "system_options: unknown system option 'warp'"),
        ({"system": "etcd", "workload_options": {"hold_max": -1}}, "workload_options: parameters.hold_max"),
        ({"system": "etcd", "fault": "freez-leader"}, "fault: unknown fault 'freez-leader'; did you mean"),
        ({"system": "etcd", "fault": "freeze-holdr"}, "did you mean freeze-holder?"),
        ({"system": "etcd", "fault": "clock-leader", "fault_options": {"ofset": 3}}, "fault: .*ofset"),
        ({"system": "etcd", "fault": "kill-n4"}, "fault: this trial has no node 'n4'"),
        ({"system": "redis", "fault": "partition-leader"}, "makes no sense: a single server"),
        ({"system": "etcd", "schedule": {"kind": "sometimes"}}, "^schedule: parameter .kind"),
        ({"system": "etcd", "seed": -1}, "seed: must be a whole number from 0 to 9223372036854775807, not -1"),
        ({"system": "etcd", "images": {"etcd": "../.."}}, "images.etcd: '../..' is no image reference"),
        ({"system": "etcd", "expect": {"leese": False}}, "expect.leese: unknown verdict"),
        ({"system": "etcd", "expect": {"lease": "perhaps"}}, 'expect.lease: must be true, false, "unknown" or "any"'),
    ],
)
def test_bad_values_name_the_key_and_the_reason(values: dict[str, Any], words: str) -> None:
    """One bad value is one sentence."""
    with pytest.raises(ConfigError, match=words) as caught:
        resolve(from_mapping(values))
    assert caught.value.exit_code == 2


def test_the_command_that_repeats_a_cell_gives_the_same_cell() -> None:
    """What the report prints under "again" is the whole cell, seed and options included."""
    config = resolve(
        TrialConfig(
            system="etcd",
            fault="clock-leader",
            holder="naive",
            servers=5,
            fault_options={"offset": 60},
            images={"etcd": "my/etcd:3.6"},
            expect={"lease": "any"},
            schedule={"kind": "random"},
        )
    )
    words = shlex.split(config.repeat_command())
    assert words[:3] == ["fencepost", "run", "etcd"]
    from harness.commands.options import given
    from harness.commands.run import command

    context = command.make_context("run", words[2:])
    values = {
        key: value for key, value in context.params.items() if key not in ("results", "name", "keep", "runtime_name")
    }
    assert resolve(from_mapping(given(values))) == config


def test_images_that_the_environment_names_are_part_of_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that repeats it gives them, where another environment may not; what is given outright goes first."""
    monkeypatch.setenv("FENCEPOST_IMAGE_ETCD", "my/etcd:3.6")
    monkeypatch.setenv("FENCEPOST_IMAGE_CONTENDER", "my/contender:2")
    monkeypatch.setenv("FENCEPOST_IMAGE_REDIS", "my/redis:7")
    monkeypatch.setenv("FENCEPOST_IMAGE_MOON", "my/moon:1")
    config = resolve(TrialConfig(system="etcd", seed=1, images={"contender": "your/contender:3"}))
    told = "fencepost run etcd --seed 1 --image etcd=my/etcd:3.6 --image contender=your/contender:3"
    assert config.repeat_command() == told
    monkeypatch.setenv("FENCEPOST_IMAGE_ETCD", "http://x")
    with pytest.raises(ConfigError, match=r"images\.etcd: 'http://x' is no image reference"):
        resolve(TrialConfig(system="etcd"))


@pytest.mark.parametrize(
    ("reference", "legal"),
    [
        ("redis", True), ("redis:7.2", True), ("registry.example:5000/a/b_c:x", True), ("[::1]:5000/a", True),
        ("a/b@sha256:" + "0" * 64, True), ("sha256:" + "0" * 64, True), ("localhost/x:1.2-3_4", True), ("built", True),
        ("../..", False), ("/x", False), ("a//b", False), ("foo:", False), (":tag", False), ("x y", False),
        ("UPPER/case", True), ("UPPER", False), ("a/UPPER", False), ("redis:7.2?x=1", False), ("a@sha256:zz", False),
        ("http://x/y", False), ("", False), ("x\n", False),
    ],
)  # fmt: skip
def test_what_can_be_the_reference_of_an_image(reference: str, legal: bool) -> None:
    """By the engine's own grammar: what it would answer with "page not found" is never asked."""
    assert (why_not(reference) is None) == legal


def test_a_cell_tells_all_that_is_not_usual() -> None:
    """Options of all kinds, each by itself, images and the seed: whatever two cells of a matrix may differ in."""
    config = resolve(
        TrialConfig(
            system="etcd", fault="clock-leader", contenders=3, seed=7, min_grants=1, fault_options={"offset": 60},
            images={"etcd": "my/etcd:3.6"}, schedule={"kind": "random"}, expect={"lease": "any"},
        )
    )  # fmt: skip
    assert config.cell()["parameters"] == {
        "holder": "guarded", "servers": 3, "ttl": 2.0, "contenders": 3, "seed": 7, "min_grants": 1,
        "fault_options.offset": 60, "images.etcd": "my/etcd:3.6", "schedule.kind": "random",
    }  # fmt: skip
    assert resolve(TrialConfig(system="etcd", seed=7)).cell()["parameters"].keys() == {
        "holder",
        "servers",
        "ttl",
        "seed",
    }


def test_every_built_in_entry_point_loads() -> None:
    """What `fencepost list` names is really there."""
    for kind in registry.KINDS:
        for name in registry.names(kind):
            registry.load(kind, name)


def test_an_unknown_kind_of_name_lists_the_known_ones() -> None:
    """A typing error is answered with what was probably meant."""
    with pytest.raises(UsageError, match=r"unknown system 'zokeeper'; did you mean 'zookeeper'\?"):
        registry.load("systems", "zokeeper")


def test_list_names_every_system_fault_workload_and_verdict() -> None:
    """One line each, from the things themselves."""
    shown = CliRunner().invoke(cli, ["list"])
    assert shown.exit_code == 0
    for name in ("zookeeper", "partition-leader", "freeze-holder", "lock", "linearizable"):
        assert name in shown.output
    assert "BROKEN" not in shown.output


@pytest.mark.parametrize("name", ["run", "matrix", "check", "report", "images", "clean", "doctor", "list"])
def test_every_command_has_help_with_examples(name: str) -> None:
    """A help text that shows no example helps little."""
    shown = CliRunner().invoke(cli, [name, "--help"])
    assert shown.exit_code == 0
    assert "Examples:" in shown.output
    assert f"fencepost {name}" in shown.output
