"""What a trial is asked to do, validated at the border.

`TrialConfig` is one cell, with every value that a user can set; `resolve` fills in what follows from others and
rejects what makes no sense, each time with a `ConfigError` that names file, key and reason. A config that came
through `resolve` can be trusted by everything behind it.
"""

from __future__ import annotations

import difflib
import json
import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from harness import registry, secrets
from harness.client import brought, plugged
from harness.client.brought import Brought
from harness.errors import ConfigError, UsageError
from harness.expectations import Verdict
from harness.images import from_environment, of_version, why_not
from harness.images.brought import name_of
from harness.systems import roles
from harness.systems.base import LeaseTerms, Settings, sizes, terms_of
from harness.trial import attaching, bringing, holders
from harness.trial.holders import OLDER, take_holder
from harness.trial.timing import timing
from nemesis import faults
from nemesis.base import Exchanges, Fits
from nemesis.schedule import Schedule
from nemesis.targets import EVERY, NAME, on_contender
from workloads.validate import BadConfig

SLUG_PART = 40
"""Characters of one part of a folder's name: an option may be a long text."""
SLUG = 80
"""Characters of all of it: with the time before it, it must be a name that `--name` would take."""
VERDICT_WORDS = ("unknown", "any")


#: Keys that a cell tells elsewhere, or that make no other trial.
_TOLD_APART = frozenset(
    {"system", "version", "workload", "fault", "holder", "servers", "ttl", "secrets", "expect", "expect_reason"}
    | {"client", "client_dir", "client_image", "client_name", "client_digest"}
)


class TrialConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell: system, workload, fault and parameters. Durations in seconds."""

    system: str
    fault: str = "none"
    """Kind and target, "freeze-holder"; the kinds and their targets are in `fencepost list`."""
    version: str | None = None
    """Of the system; None = the usual one. `system = "etcd@3.4.23"` says both (`take_version`)."""
    workload: str = "lock"
    servers: int | None = None
    """How many servers; None = the system's usual number."""
    client: str | None = None
    """The contenders' lock client, by its name; None = the system's own. See workloads/clients/zoo for wrong ones. Or
    one of the user's own: a file, or a command (harness/client/brought.py)."""
    client_dir: str | None = None
    """The folder that the command of such a client is started in, all of which is sent to its nodes."""
    client_image: str | None = None
    """The image that such a client lives in, in the place of the contenders': then `client` is a command in there, and
    the image's own where none is given."""
    client_options: dict[str, Any] = msgspec.field(default_factory=dict)
    """What such a client is told besides."""
    client_name: str | None = None
    """What it is called wherever it is shown; None = after its file."""
    client_digest: str | None = None
    """Over its command, its files and its packages; given, it says which state of them is meant."""
    contenders: int = 5
    holder: str | None = None
    """What kind of holders the contenders are, one of `workloads.holders.HOLDERS`; None = the usual one, which is
    guarded, and with a client of the user's own trusting: it believes what that says, as applications do."""
    ttl: float = 2.0
    """The lease that contenders ask for."""
    seed: int | None = None
    """Of everything that is drawn by lot; None = drawn, and recorded."""
    warmup: float = 2.0
    """Undisturbed, at least; and until the lock was granted once."""
    duration: float | None = None
    """How long faults are applied; None = 20 s, or longer where too few would fit."""
    fault_on: float | None = None
    """How long each fault lasts; None = so long that it bites on this system (harness/trial/timing.py)."""
    fault_off: float | None = None
    """The pause between two faults, at least; None = what follows from the ttl and `fault_on`."""
    schedule: dict[str, Any] = msgspec.field(default_factory=dict)
    """When faults come, over `fault_on`, `fault_off` and `duration`: kind = "timed" (default), "random" (times drawn
    from the seed) or "triggered" (each fault waits for a grant); see nemesis/schedule.py."""
    recovery: float = 2.0
    """Undisturbed at the end, at least; and until the lock was granted again, or `progress_bound` has passed."""
    progress_bound: float | None = None
    """How long the lock may stay free while it is wanted and nothing is broken; None = what this system needs to give
    a lock away and hand it over."""
    min_grants: int = 10
    min_handovers: int = 4
    """Fewer grants, or changes of the holder from one contender to another, and the cell is inconclusive."""
    uncertainty: float = 0.0
    """By how much stamps of two processes may disagree. 0 where all nodes share a kernel."""
    rate_tolerance: float = 0.001
    """By which share two clocks may run apart: the kernel slews a wall clock by up to 0.0005, Redis counts in ms."""
    endpoints: list[str] = msgspec.field(default_factory=list)
    """A cluster that exists, HOST:PORT each, in the place of servers of ours (harness/systems/attached.py)."""
    endpoint_options: dict[str, Any] = msgspec.field(default_factory=dict)
    """How to get into it: TLS, its files, user and password."""
    system_options: dict[str, Any] = msgspec.field(default_factory=dict)
    fault_options: dict[str, Any] = msgspec.field(default_factory=dict)
    workload_options: dict[str, Any] = msgspec.field(default_factory=dict)
    secrets: list[str] = msgspec.field(default_factory=list)
    """Keys of options whose values are secrets though their names don't say so; see harness/secrets.py."""
    images: dict[str, str] = msgspec.field(default_factory=dict)
    """Image name -> reference, over what `fencepost images` would use."""
    expect: dict[str, Verdict] = msgspec.field(default_factory=dict)
    """Verdict -> the value that is expected; a violation that is expected is no failure."""
    expect_reason: str | None = None
    """Why that is expected, for the reader of the report."""

    def describe(self) -> str:
        """The cell in a few words: "etcd x clock-leader clocks=monotonic, naive"."""
        by = f" by {words}" if (words := self.client_words()) is not None else ""
        return f"{self.system_words()}{by} x {self.fault_words()}, {self.kind}"

    @property
    def kind(self) -> str:
        """The kind of holders that the contenders are."""
        return self.holder if self.holder is not None else self._usual_kind()

    def _usual_kind(self) -> str:
        return "guarded" if self._is_ours() else "trusting"

    def _is_ours(self) -> bool:
        return brought.is_ours(self.client, self.client_dir, self.client_image)

    def client_words(self) -> str | None:
        """What the client is called, where it isn't the system's own: its name, or that of its file or its image."""
        if self.client is None and self.client_image is None:
            return None
        return self.client_name or brought.names(self.client, self.client_dir, self.client_image)[0]

    def brought_client(self) -> Brought | None:
        """The client that the user brings, with all that is sent; None of ours. Only of a resolved config."""
        return None if self.client_digest is None else brought.known(self.client_digest)

    def plugged(self) -> list[tuple[str, str]]:
        """What runs on the contenders' nodes by (kind, name): its package is sent there where it isn't ours."""
        client = self.client or registry.load("systems", self.system).client
        ours = [("clients", client)] if self._is_ours() else []
        return [*ours, ("workloads", self.workload)]

    def contender_image(self) -> str:
        """The name of the contenders' image: the usual one, or one with the packages that their client needs."""
        client = self.brought_client()
        return name_of(client.packages) if client is not None and client.packages else "contender"

    def system_words(self) -> str:
        """The system, with its version where one was asked for, and where it is when it isn't ours: "etcd@3.4.23",
        "etcd at 10.0.0.7:2379".
        """
        return self._system_name() + (f" at {','.join(self.endpoints)}" if self.endpoints else "")

    def _system_name(self) -> str:
        return self.system + (f"@{self.version}" if self.version is not None else "")

    def image_of(self, name: str) -> str:
        """The image that a service runs in, by the name that its system gives it: of the version that was asked for.

        UsageError names the versions that there are.
        """
        if self.version is None or name != registry.load("systems", self.system).image:
            return name
        return of_version(name, self.version)

    def fault_words(self) -> str:
        """The fault, with the options by which the cell is told from others: "clock-leader clocks=monotonic"."""
        return " ".join([self.fault, *(f"{key}={_plain(value)}" for key, value in self.options_told().items())])

    def options_told(self) -> dict[str, Any]:
        """The options of fault and system that are set, by which cells of the same names are told apart.

        Without what is no plain value, or stands for a secret.
        """
        given = {**self.fault_options, **self.system_options}
        return {
            key: value
            for key, value in given.items()
            if isinstance(value, (bool, int, float)) or (isinstance(value, str) and not value.startswith("env:"))
        }

    def _usual_servers(self) -> int:
        counts: tuple[int, ...] = registry.load("systems", self.system).server_counts
        return counts[0]

    def terms(self, system_options: Mapping[str, Any] | None = None) -> LeaseTerms:
        """On which terms leases are granted here. UsageError for a bad option, or an unknown system.

        `system_options` are those with their secrets, where they are at hand; no term depends on a secret.
        """
        system = registry.load("systems", self.system)
        servers = self.servers if self.servers is not None else self._usual_servers()
        given = self.system_options if system_options is None else system_options
        return terms_of(system(), Settings(self.ttl, servers, system.image, given, attached=bool(self.endpoints)))

    def derived(self, terms: LeaseTerms | None = None) -> dict[str, float]:
        """What each of the times is where it isn't given: from the system, its ttl, the fault, and the others that are.

        UsageError as `terms`.
        """
        kind, target = faults.parse(self.fault)
        if not target and kind != "none":
            target = "leader"  # what takes no target is done to the servers
        terms = terms or self.terms()
        usual = timing(terms, target)
        off = timing(terms, target, fault_on=self.fault_on).fault_off
        duration = timing(terms, target, fault_on=self.fault_on, fault_off=self.fault_off).duration
        return {
            "fault_on": usual.fault_on,
            "fault_off": off,
            "duration": duration,
            "progress_bound": usual.progress_bound,
        }

    def make_schedule(self) -> Schedule:
        """When faults come. UsageError names a bad key. Only of a resolved config."""
        assert self.duration is not None
        assert self.fault_on is not None
        assert self.fault_off is not None
        assert self.seed is not None
        return Schedule.from_mapping(
            self.schedule, on=self.fault_on, off=self.fault_off, duration=self.duration, seed=self.seed
        )

    def images_needed(self) -> list[str]:
        """The names of the images that a trial of this cell needs."""
        ours = [] if self.endpoints else roles.images_of(registry.load("systems", self.system))
        return [*map(self.image_of, ours), *self._exchanged(), "node", self.contender_image(), "postgres"]

    def _exchanged(self) -> list[str]:
        """What the system's image is exchanged for in the middle of the trial."""
        kind, target = faults.parse(self.fault)
        if not hasattr(registry.load("faults", kind), "images"):
            return []
        fault = cast(Exchanges, faults.make(kind, target, self.fault_options))
        image = registry.load("systems", self.system).image
        return [fault.images(image)[self.image_of(image)]]

    def cell(self) -> dict[str, Any]:
        """The cell as data, for trial.json and matrix.json."""
        return {
            "system": self._system_name(),
            "workload": self.workload,
            "fault": self.fault,
            "parameters": {"holder": self.kind, "servers": self.servers, "ttl": self.ttl, **self._unusual()},
        }

    def _unusual(self) -> dict[str, Any]:
        """What else is not as usual, the seed included, by its key; of a table each: `fault_options.offset`."""
        derived = self.derived() if self.fault_on is not None else {}
        found: dict[str, Any] = {}
        for field in msgspec.structs.fields(TrialConfig):
            name, value = field.name, getattr(self, field.name)
            if name in _TOLD_APART or value in (field.default, derived.get(name), []):
                continue
            if isinstance(value, dict):
                found |= {f"{name}.{key}": item for key, item in value.items()}
            else:
                found[name] = ", ".join(value) if name == "endpoints" else value
        client = self.client_words()
        return found if client is None else {"client": client, **found}

    def slug(self) -> str:
        """A name for its folder: "etcd-clock-leader-clocks-monotonic-naive"; says what isn't usual."""
        parts = [self._system_name(), self.fault]
        parts += [f"{key}-{_plain(value)}"[:SLUG_PART] for key, value in self.options_told().items()]
        if self.servers not in (None, self._usual_servers()):
            parts.append(f"{self.servers}n")
        if self.endpoints:
            parts.append(f"at-{self.endpoints[0]}")
        if (client := self.client_words()) is not None:
            parts.append(client[:SLUG_PART])
        if self.workload != "lock":
            parts.append(self.workload)
        parts.append(self.kind)
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(parts))[:SLUG].rstrip("-")

    def repeat_command(self, runtime: str = "docker") -> str:
        """The command line that runs this cell again, images that the environment named included.

        `runtime` is where it ran; Docker goes without saying, as it is taken wherever there is an engine.
        """
        usual = {field.name: field for field in msgspec.structs.fields(TrialConfig)}
        resolved = self.fault_on is not None  # of another, what it says is all that there is
        derived = self.derived() if resolved else {}
        words = ["fencepost", "run", self._system_name()]
        for name, field in usual.items():
            value = getattr(self, name)
            default = field.default if field.default is not msgspec.NODEFAULT else {}
            if name in ("system", "version") or value in (default, derived.get(name), []):
                continue
            if name == "expect_reason":
                continue
            if name == "servers" and value == self._usual_servers():
                continue
            flag = "--" + name.replace("_", "-")
            if name == "holder" and value in ("guarded", "naive"):
                words.append(f"--{value}")
            elif name == "endpoints":
                words.append(f"--endpoints {','.join(map(_plain, value))}")
            elif name == "secrets":
                words += [f"--secret {_plain(key)}" for key in value]
            elif isinstance(value, dict):
                if name == "images":
                    value = {image: value[image] for image in self.images_needed() if image in value}
                flag = {"images": "--image", "expect": "--expect"}.get(name, flag.removesuffix("s"))
                words += [f"{flag} {key}={_plain(item)}" for key, item in value.items()]
            else:
                words.append(f"{flag} {_plain(value)}")
        if runtime != "docker":
            words.append(f"--runtime {runtime}")
        return " ".join(words)

    def variables(self) -> list[str]:
        """The environment variables that hold the secrets of this cell."""
        return secrets.variables([getattr(self, table) for table in secrets.TABLES])


def _plain(value: object) -> str:
    if isinstance(value, (dict, list)):
        value = json.dumps(value)
    text = {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    return text if re.fullmatch(r"[\w.,:/@+-]+", text) else "'" + text.replace("'", "'\\''") + "'"


def from_mapping(data: Mapping[str, Any], *, path: Path | str | None = None, key: str | None = None) -> TrialConfig:
    """A config from plain data (TOML, flags), with references in the place of secrets (`harness.secrets.seal`).

    Unknown keys and wrong types are a ConfigError that names the key.
    """
    for name in data:
        check_key(name, path=path, key=_dotted(key, name))
    data = take_holder(take_version(data, path=path, key=key), path=path, key=key)
    data = bringing.placed(data, path=path, key=key)
    try:
        return msgspec.convert(secrets.seal(data, path=path, key=key), TrialConfig)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$")
        missing = re.search(r"missing required field `(\w+)`", reason)
        name = missing[1] if missing else where.rstrip("`").lstrip(".")
        raise ConfigError(path, _dotted(key, name), reason) from error


def take_version(data: Mapping[str, Any], *, path: Path | str | None = None, key: str | None = None) -> dict[str, Any]:
    """A trial's keys with the version taken out of `system = "etcd@3.4.23"`.

    ConfigError where `version` says another one.
    """
    taken = dict(data)
    system = taken.get("system")
    if not isinstance(system, str) or "@" not in system:
        return taken
    taken["system"], _, version = system.partition("@")
    if taken.setdefault("version", version) != version:
        raise ConfigError(path, _dotted(key, "version"), f"is {taken['version']!r}, and system says {system!r}")
    return taken


_dotted = secrets.dotted


def resolve(config: TrialConfig, *, path: Path | str | None = None, key: str | None = None) -> TrialConfig:
    """The config with everything filled in that follows from the rest, after all of it was checked.

    Raises ConfigError naming the key for a value out of range, an unknown name, a secret whose variable isn't set, or a
    combination that makes no sense.
    """

    def bad(name: str, reason: str) -> ConfigError:
        return ConfigError(path, _dotted(key, name), reason)

    def revealed(name: str) -> dict[str, Any]:
        return secrets.reveal(getattr(config, name), path=path, key=_dotted(key, name))

    def named(name: str, kind: str, value: str) -> Any:
        try:
            return registry.load(kind, value)
        except UsageError as error:
            raise bad(name, str(error)) from error

    system = named("system", "systems", config.system)
    workload = named("workload", "workloads", config.workload)
    client = bringing.check(config, bad)
    try:
        plugged.read(config.plugged())
    except UsageError as error:
        raise bad("client", str(error)) from error
    revealed("client_options")
    if config.holder is not None and (reason := holders.check(config.holder)) is not None:
        raise bad("holder", reason)
    try:
        image = config.image_of(system.image)
    except UsageError as error:
        raise bad("version", str(error)) from error
    if config.version is not None and {image, system.image} & config.images.keys():
        raise bad("version", "can't be asked for beside an image that is given, which has its own")
    servers = config.servers if config.servers is not None else system.server_counts[0]
    if config.endpoints or config.endpoint_options:
        attaching.check(config, revealed("endpoint_options"), bad)
        servers = len(config.endpoints)
    elif servers not in system.server_counts:
        word = "server" if system.server_counts == (1,) else "servers"
        raise bad("servers", f"{config.system} runs with {sizes(system)} {word}, not {servers}")

    def in_range(values: TrialConfig, *ranges: tuple[str, float, float]) -> None:
        for name, low, high in ranges:
            value = getattr(values, name)
            if not low <= value <= high:
                raise bad(name, f"must lie between {low:g} and {high:g}, not {value:g}")

    in_range(
        config,
        ("contenders", 2, 50),
        ("ttl", 0.5, 3600),
        ("warmup", 0, 3600),
        ("recovery", 0, 3600),
        ("min_grants", 0, 10**9),
        ("min_handovers", 0, 10**9),
        ("uncertainty", 0, 3600),
        ("rate_tolerance", 0, 0.5),
    )
    try:
        kind, target = faults.parse(config.fault)
    except UsageError as error:
        raise bad("fault", str(error)) from error
    options = revealed("system_options")
    try:
        terms = config.terms(options)
    except UsageError as error:
        raise bad("system_options", str(error)) from error
    if (reason := _not_granted(config, terms)) is not None:
        raise bad("ttl", reason)
    if config.seed is not None and not 0 <= config.seed < 2**63:
        raise bad("seed", f"must be a whole number from 0 to {2**63 - 1}, not {config.seed}")
    known = _image_names()
    derived = config.derived(terms)
    filled = msgspec.structs.replace(
        config,
        servers=None if config.endpoints else servers,
        seed=config.seed if config.seed is not None else random.SystemRandom().randrange(2**31),
        images=_images(config, known, system.image),
        client_digest=None if client is None else client.digest,
        holder=None if config.holder == config._usual_kind() else config.holder,
        **{name: value for name, value in derived.items() if getattr(config, name) is None},
    )
    in_range(
        filled,
        ("duration", 0, 86400),
        ("fault_on", 0.1, 3600),
        ("fault_off", 0, 3600),
        ("progress_bound", 0.1, 86400),
    )

    if client is not None and client.packages and "contender" in filled.images:
        raise bad("client", bringing.IMAGE_GIVEN)
    for name, reference in filled.images.items():
        if name not in known:
            raise bad(f"images.{name}", f"unknown image (known: {', '.join(known)})")
        if (reason := why_not(reference)) is not None:
            raise bad(f"images.{name}", reason)
    settings = Settings(config.ttl, servers, image, options, attached=bool(config.endpoints))
    contenders = [f"c{number}" for number in range(config.contenders)]
    try:
        made_up = ("192.0.2.1",)  # from the range for documentation: only the options are looked at
        names: list[str] = [] if config.endpoints else roles.node_names(system(), settings)
        plan: roles.Plan = {}
        if not config.endpoints:
            mates = dict.fromkeys(contenders, made_up)
            plan = roles.services_of(system(), settings, dict.fromkeys(names, made_up), mates)
    except roles.PlanError as error:
        raise bad("system", str(error)) from error
    except UsageError as error:
        raise bad("system_options", str(error)) from error
    try:
        workload.resolve(revealed("workload_options"))
    except BadConfig as error:
        raise bad("workload_options", str(error)) from error

    try:
        fault = faults.make(kind, target, revealed("fault_options"))
    except UsageError as error:
        raise bad("fault", str(error)) from error
    if kind == "unlock" and client is not None:
        raise bad("fault", "unlock takes away the lock of the system's own client, and knows no keys of yours")
    if config.endpoints and (reason := attaching.not_offered(kind, target, config.fault_options)) is not None:
        raise bad("fault", reason)
    nodes = [*names, *contenders]
    if NAME.fullmatch(target) and target not in nodes:
        raise bad("fault", f"this trial has no node {target!r} (nodes: {', '.join(nodes)})")
    rule = faults.why_not(kind, target, system=config.system, servers=servers)
    if rule is not None:
        raise bad("fault", f"{config.system} x {config.fault} makes no sense: {rule}")
    if isinstance(fault, Fits) and (reason := fault.unfit(system())) is not None:
        raise bad("fault_options", reason)
    if isinstance(fault, Exchanges):
        try:
            same = fault.images(system.image)[image] == image
        except UsageError as error:
            raise bad("fault_options", str(error)) from error
        if same:
            raise bad("fault_options", f"{config.system_words()} starts with that version; ask for another one")
    if (reason := _lacks(plan, target, config.fault_options.get("service"), names, contenders)) is not None:
        raise bad("fault_options.service", reason)

    try:
        schedule = filled.make_schedule()
    except UsageError as error:
        raise bad("schedule", str(error).removeprefix("schedule: ")) from error
    if kind != "none" and schedule.cycle().next(0.0) is None:
        raise bad(
            "duration" if config.duration is not None or "duration" in config.schedule else "fault_on",
            f"not one fault of {schedule.on:g} s fits into {schedule.duration:g} s"
            + (f" after a warm-up of {schedule.warmup:g} s" if schedule.warmup else "")
            + f"; set duration to {schedule.on + schedule.warmup:g} s at least, or a shorter fault_on",
        )
    for name, value in config.expect.items():
        check_expectation(name, value, path=path, key=_dotted(key, f"expect.{name}"))
    return filled


def _images(config: TrialConfig, known: Sequence[str], image: str) -> dict[str, str]:
    """The images that are given, by the environment or by the config. One of the system's that the environment names
    isn't the version that was asked for.
    """
    named = {name: reference for name, reference in from_environment().items() if name in known}
    if config.version is not None:
        named.pop(image, None)
    return {**named, **config.images}


def _lacks(
    plan: roles.Plan, target: str, service: object, servers: Sequence[str], contenders: Sequence[str]
) -> str | None:
    """None when what a fault is aimed at has the service that it names, else what there is."""
    if service is None:
        return None
    among = contenders if on_contender(target) else servers
    among = [target] if target in among else among
    known = list(dict.fromkeys(name for node in among for name in plan.get(node, ())))
    where = f"beside {target if target in contenders else 'a contender'}" if on_contender(target) else "on a server"
    where = f"on {target}" if target in servers else where
    if not known:
        return f"there is no service {where} (without it, the fault means the contender itself)"
    if service == EVERY or service in known:
        return None
    return f"there is no service {service!r} {where} (there: {', '.join(known)}, or {EVERY})"


def _not_granted(config: TrialConfig, terms: LeaseTerms) -> str | None:
    """None when the system grants this ttl, else what it grants."""
    step, least = terms.granularity_seconds, terms.least_seconds
    if config.ttl < least - 1e-9:
        how = " with these system options" if config.system_options else ""
        return f"{config.system} grants no lease below {least:g} s{how}, and the ttl is {config.ttl:g} s"
    if step and abs(config.ttl / step - round(config.ttl / step)) > 1e-6:
        below = math.floor(config.ttl / step) * step
        near = [each for each in (below, below + step) if each >= least]
        return (
            f"{config.system} grants leases in steps of {step:g} s, so a ttl of {config.ttl:g} s can't be had; "
            f"give {' or '.join(f'{each:g}' for each in near)}"
        )
    return None


def _image_names() -> list[str]:
    """Every image that some trial could need."""
    return sorted(
        {
            *("node", "contender", "postgres"),
            *(image for name in registry.names("systems") for image in roles.images_of(registry.load("systems", name))),
        }
    )


def check_key(name: str, *, path: Path | str | None, key: str) -> None:
    """ConfigError unless a trial has a key of this name."""
    known = [field.name for field in msgspec.structs.fields(TrialConfig)]
    if name not in (*known, OLDER):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        raise ConfigError(path, key, f"unknown key; {hint}")


def check_marks(configs: Iterable[TrialConfig], *, path: Path | str | None) -> None:
    """ConfigError for a mark of a secret that is no key of any option: with a typing error the value would be shown."""
    configs = list(configs)
    known = secrets.keys([getattr(config, table) for config in configs for table in secrets.TABLES])
    for mark in dict.fromkeys(mark for config in configs for mark in config.secrets):
        if mark not in known:
            near = difflib.get_close_matches(mark, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(path, "secrets", f"no option has the key {mark!r}{hint}")


def check_expectation(name: str, value: object, *, path: Path | str | None, key: str) -> None:
    """ConfigError unless this is a verdict that there is, and a value that it can have (or "any")."""
    known = registry.names("verdicts")
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        raise ConfigError(path, key, f"unknown verdict; {hint}")
    if not isinstance(value, bool) and value not in VERDICT_WORDS:
        raise ConfigError(path, key, f'must be true, false, "unknown" or "any", not {value!r}')
