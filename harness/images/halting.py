"""Ending the builds and pulls of a run early, so that nothing half made stays.

An engine gives up a build when its client has gone, some time later: until then a step's container runs on, or is
created only then, and what the steps before it made stays for ever, without a name. So whoever gets images does it
under a `Halt`. `Halt.stop` closes its half of the streams on which the engine tells of its work. The engine takes that
for a client that has gone, gives up, and ends the other half when it has: that is its answer, and each build waits for
it. Then it removes its draft and the unnamed images that it made. Those that an earlier build made are left: they are
what the next one starts from.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import docker
import requests
from docker.errors import APIError, NotFound

from harness.errors import RuntimeUnavailable

log = logging.getLogger(__name__)

STEP_ENDS_SECONDS = 20.0
"""How long the engine may take to give up what its client no longer wants; then the step's container is removed from
here. A busy engine was seen to need two."""
_POLL_SECONDS = 0.05
_UNNAMED = "<none>:<none>"

_RUNNING_IN = re.compile(r"^ ---> Running in ([0-9a-f]{12})")
_STEP_MADE = re.compile(r"^ ---> ([0-9a-f]{12})\n?$")
_STEP = re.compile(r"^Step \d+/\d+ : (\S+ .*)")
_CACHED = " ---> Using cache"


class Halted(RuntimeUnavailable):
    """Getting images was interrupted by the user; everything half made was removed."""

    exit_code = 130


class Halt:
    """The user's wish to stop getting images. For several threads."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._streams: list[Any] = []

    def check(self) -> None:
        """Raises Halted once it was asked to stop."""
        if self.stopped.is_set():
            raise Halted("getting images was interrupted")

    def stop(self) -> None:
        """Break off all streams, and let none begin. Returns at once; what was broken off tidies up by itself."""
        self.stopped.set()
        with self._lock:
            for response in self._streams:
                self._break_off(response)

    def _break_off(self, response: Any) -> None:
        """Say that nobody wants it any more, and see that the engine's answer to that has an end."""
        _shut(response, socket.SHUT_WR)
        patience = threading.Timer(STEP_ENDS_SECONDS, self._give_up, [response])
        patience.daemon = True
        patience.start()

    def _give_up(self, response: Any) -> None:
        with self._lock:
            if response in self._streams:
                _shut(response, socket.SHUT_RDWR)

    @contextmanager
    def streams(self, client: docker.DockerClient, path: str) -> Iterator[None]:
        """Every stream that the client opens on this path of the engine's API while inside can be broken off.

        What the client raises when that happens comes out as Halted. The Docker client hands out no more than the
        lines of a stream, so the answer is taken from the session below it, as it comes in.
        """
        mine: list[Any] = []

        def opened(response: Any, *_: object, **__: object) -> None:
            if path in str(response.request.path_url):
                with self._lock:
                    mine.append(response)
                    self._streams.append(response)
                    if self.stopped.is_set():
                        self._break_off(response)

        hooks = cast(Any, client.api).hooks["response"]
        self.check()
        hooks.append(opened)
        try:
            yield
            self.check()
        except (requests.exceptions.RequestException, OSError, ValueError, APIError) as error:
            self.check()
            raise error
        except Exception as error:
            # urllib3's own errors come through a stream undressed.
            if not type(error).__module__.startswith("urllib3"):
                raise
            self.check()
            raise requests.exceptions.ConnectionError(error) from error
        finally:
            hooks.remove(opened)
            with self._lock:
                self._streams = [each for each in self._streams if each not in mine]


def _shut(response: Any, how: int) -> None:
    with suppress(OSError, AttributeError):  # it has ended by itself this moment
        response.raw.connection.sock.shutdown(how)


class Steps:
    """What one build has made so far, read from the lines that it prints."""

    def __init__(self, client: docker.DockerClient, base: str) -> None:
        self._client = client
        self._began = int(time.time())
        self._last = str(cast(Any, client.api).inspect_image(base)["Id"])
        self._made: list[str] = []
        self._step = ""
        self._cached = False
        self._container = ""

    def read(self, line: str) -> None:
        """One line of the build's output."""
        if found := _STEP.match(line):
            self._step, self._cached = found[1].strip(), False
        elif found := _RUNNING_IN.match(line):
            self._container = found[1]
        elif line.startswith(_CACHED):
            self._cached = True
        elif (found := _STEP_MADE.match(line)) and not self._step.startswith("FROM "):
            self._last = found[1]
            if not self._cached:
                self._made.append(found[1])

    def remove(self) -> None:
        """The build was broken off: wait until its step has ended, then remove what it made."""
        deadline = time.monotonic() + STEP_ENDS_SECONDS
        while running := self._containers():
            if time.monotonic() > deadline:
                for container in running:
                    with suppress(NotFound):
                        self._client.api.remove_container(container, v=True, force=True)
            time.sleep(_POLL_SECONDS)
        # Newest first: an image goes only after those that stand on it.
        for image in reversed(self._images()):
            try:
                self._client.api.remove_image(image)
            except NotFound:
                continue
            except APIError as error:
                log.info("an unnamed image stays, since something stands on it: %s", error.explanation)

    def _containers(self) -> list[str]:
        """The container of the step that runs, or is about to."""
        return [
            str(each["Id"])
            for each in self._client.api.containers(all=True)
            if (self._container and str(each["Id"]).startswith(self._container)) or self._is_step(each)
        ]

    def _is_step(self, container: dict[str, Any]) -> bool:
        """Whether a container was created for our step and not told yet: its command on the image that we came to."""
        keyword, _, command = self._step.partition(" ")
        return bool(
            keyword == "RUN"
            and _is(container["ImageID"], self._last)
            and container["Created"] >= self._began
            and _squeezed(command) in _squeezed(container["Command"])
        )

    def _images(self) -> list[str]:
        """Ids of the unnamed images that it made, each before those that stand on it, the last step's told or not."""
        made = list(self._made)
        unnamed = [
            each
            for each in cast(Any, self._client.api).images(all=True)
            if not each["RepoTags"] or each["RepoTags"] == [_UNNAMED]
        ]
        for each in sorted(unnamed, key=lambda each: int(each["Created"])):
            on_ours = any(_is(each["ParentId"], image) for image in made)
            if (on_ours or self._untold(each)) and not any(_is(each["Id"], image) for image in made):
                made.append(str(each["Id"]))
        return made

    def _untold(self, image: dict[str, Any]) -> bool:
        """Whether it is what our step made, on an image that others build upon too."""
        if not _is(image["ParentId"], self._last) or image["Created"] < self._began:
            return False
        told = str(cast(Any, self._client.api).history(image["Id"])[0]["CreatedBy"])
        return _squeezed(self._step.partition(" ")[2]) in _squeezed(told)


def _is(identity: str, short: str) -> bool:
    return identity == short or identity.removeprefix("sha256:").startswith(short)


def _squeezed(text: str) -> str:
    return "".join(text.split())
