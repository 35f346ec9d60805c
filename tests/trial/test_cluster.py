"""What is told of servers that never got healthy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.errors import NotHealthy
from harness.trial.cluster import Cluster


@pytest.mark.parametrize("word", ["was removed", "exited with code 137, out of memory"])
def test_a_server_that_ended_is_told_in_a_sentence(word: str) -> None:
    """Whatever the engine's word for its end: it stands where it makes a sentence."""
    node = SimpleNamespace(service_running=lambda service: (False, word), logs=lambda service: b"goodbye\n")
    system = SimpleNamespace(name="etcd")
    cluster = Cluster.__new__(Cluster)
    cluster.system, cluster.nodes = cast(Any, system), cast(Any, {"n1": node})
    cluster.beside, cluster.plan = {}, cast(Any, {"n1": {"etcd": None}})
    told = rf"^etcd on n1 ended while it was starting: it {word} \(seen: no leader\); its last words: goodbye$"
    with pytest.raises(NotHealthy, match=told):
        cluster._raise_if_ended("no leader")
