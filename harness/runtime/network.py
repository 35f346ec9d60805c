"""The network of a site: internal, dual stack, on subnets of its own choice.

The engine's own address pools hold some thirty networks, shared with everything else on the machine, so the subnets
are named here: a random /24 out of one private /16 for IPv4 (FENCEPOST_IPV4_POOL overrides it, where 10.183.0.0/16 is
in use) and a random /64 of the local range (RFC 4193) for IPv6. Addresses are handed out here too, each only once while
others are left: a server of the next trial never gets the address, nor the half-open connections, of one before it.

"Internal" alone is not enough. Engines before 25 give the containers of an internal network a default route through
the host all the same and trust to iptables; for IPv6 most of them write no rules, so a packet to a foreign address
leaves the machine (seen on 20.10). Here the default gateway is therefore an address that nobody has, and a node that
may drops the route altogether, so that what can't be reached is refused at once. Newer engines set no such route.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from docker.errors import APIError
from docker.types import IPAMConfig, IPAMPool

from harness.engine import Engine, telling
from harness.errors import HarnessError, UsageError
from harness.runtime import labels
from harness.runtime.creations import Creations

log = logging.getLogger(__name__)

DEFAULT_POOL = "10.183.0.0/16"
POOL_VARIABLE = "FENCEPOST_IPV4_POOL"
TRIES = 40
NOBODY = 254
"""The number of the gateway that does not exist."""


@dataclass(frozen=True)
class Subnets:
    """The address ranges of a site. `ipv6` is None on an engine that can't do it."""

    ipv4: ipaddress.IPv4Network
    ipv6: ipaddress.IPv6Network | None

    def pools(self) -> list[IPAMPool]:
        """What the engine is told: the ranges, and in each the gateway that nobody has."""
        pools = [IPAMPool(str(self.ipv4), aux_addresses={"DefaultGatewayIPv4": str(self.ipv4[NOBODY])})]
        if self.ipv6 is not None:
            pools.append(IPAMPool(str(self.ipv6), aux_addresses={"DefaultGatewayIPv6": str(self.ipv6[NOBODY])}))
        return pools

    def addresses(self, host: int) -> tuple[str, ...]:
        """The addresses of one node; its number reads the same in both: 10.183.7.12 and fd…::12."""
        ipv4 = str(self.ipv4.network_address + host)
        if self.ipv6 is None:
            return (ipv4,)
        return ipv4, str(self.ipv6.network_address + int(str(host), 16))


def pool() -> ipaddress.IPv4Network:
    """Where IPv4 subnets are taken from. Raises UsageError when the variable holds no such range."""
    text = os.environ.get(POOL_VARIABLE, DEFAULT_POOL)
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise UsageError(f"{POOL_VARIABLE}={text!r} is no IPv4 range such as {DEFAULT_POOL}: {error}") from error
    if network.prefixlen > 24:
        raise UsageError(f"{POOL_VARIABLE}={text!r} is smaller than the /24 that one site takes")
    return network


def random_subnets(chance: random.Random, ipv6: bool = True) -> Subnets:
    """One /24 of the pool, and one /64 of fd00::/8."""
    within = pool()
    at = within.network_address + 256 * chance.randrange(2 ** (24 - within.prefixlen))
    local = ipaddress.IPv6Network(((0xFD << 120) | (chance.getrandbits(40) << 80), 64))
    return Subnets(ipaddress.IPv4Network((at, 24)), local if ipv6 else None)


@dataclass(frozen=True)
class Network:
    """A site's network as it was created. `notes` say what it could not have."""

    id: str
    name: str
    subnets: Subnets
    notes: tuple[str, ...] = ()


def create(engine: Engine, site_id: str, marks: Mapping[str, str], creations: Creations) -> Network:
    """Create the network of a site; `creations` is told of each try.

    An engine that can't do IPv6 gets an IPv4 network, with a note (which trials record) that says why. Raises
    HarnessError when the site exists already or no free range was found.
    """
    name = labels.network_name(site_id)
    chance = random.SystemRandom()
    with telling(f"creating network {name}"):
        try:
            network_id, subnets = _try_subnets(engine, name, marks, chance, creations, ipv6=True)
            return Network(network_id, name, subnets)
        except APIError as error:
            dual_stack_failed = error
        # IPv4 alone works where both did not: then IPv6 it was. Else the error is about something else, and is told.
        network_id, subnets = _try_subnets(engine, name, marks, chance, creations, ipv6=False)
    note = f"the network has no IPv6, since Docker refused it: {dual_stack_failed.explanation or dual_stack_failed}"
    log.warning("site %s: %s", site_id, note)
    return Network(network_id, name, subnets, (note,))


def _try_subnets(
    engine: Engine,
    name: str,
    marks: Mapping[str, str],
    chance: random.Random,
    creations: Creations,
    *,
    ipv6: bool,
) -> tuple[str, Subnets]:
    """Raises APIError for what other subnets would not mend."""
    taken: list[str] = []
    for _ in range(TRIES):
        subnets = random_subnets(chance, ipv6)
        try:
            with creations.asking(f"network {name}"):
                answer: dict[str, Any] = engine.api.create_network(
                    name,
                    driver="bridge",
                    internal=True,
                    enable_ipv6=ipv6,
                    check_duplicate=True,
                    labels=dict(marks),
                    ipam=IPAMConfig(pool_configs=subnets.pools()),
                )
        except APIError as error:
            words = str(error.explanation or error).lower()
            if "already exists" in words and name.lower() in words:
                raise HarnessError(
                    f"there is a network {name} already: another run has this site, or left it behind "
                    f"(`fencepost clean --site {marks[labels.SITE]}` removes it)"
                ) from error
            if "overlap" not in words:
                raise
            taken.append(str(subnets.ipv4))
            continue
        return str(answer["Id"]), subnets
    raise HarnessError(
        f"no free range for network {name} in {pool()}: tried {len(taken)} at random, all overlap with other Docker "
        f"networks ({taken[-1]} last). `fencepost clean` removes those of earlier runs; {POOL_VARIABLE} sets another."
    )
