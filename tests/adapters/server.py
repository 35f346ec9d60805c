"""A lock server of a few lines that can be frozen, for examining adapters without a node."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from typing import Any


class LockServer:
    """One lock, whose holder is an owner with a lease. It is asked in JSON lines: acquire, renew, release, by an owner.

    While it is frozen it takes requests and answers none; once it goes on it deals with them as they came.
    """

    def __init__(self) -> None:
        self._going = threading.Event()
        self._going.set()
        self._turn = threading.Lock()
        self._owner, self._until, self._token = "", 0.0, 0
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    outer._going.wait()
                    self.wfile.write(json.dumps(outer._do(**json.loads(line))).encode() + b"\n")

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Whoever has asked is gone."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def _do(self, do: str, owner: str, ttl: float) -> dict[str, Any]:
        with self._turn:
            now = time.monotonic()
            holder = self._owner if now < self._until else ""
            if do == "acquire" and not holder:
                self._owner, self._until, self._token = owner, now + ttl, self._token + 1
                return {"done": True, "token": self._token}
            if do == "renew" and holder == owner:
                self._until = now + ttl
                return {"done": True}
            if do == "release" and owner in (holder, "whoever"):
                self._until = 0.0
                return {"done": True}
            return {"done": False}

    def freeze(self) -> None:
        """See the class."""
        self._going.clear()

    def thaw(self) -> None:
        """See the class."""
        self._going.set()

    def close(self) -> None:
        """End it."""
        self.thaw()
        self._server.shutdown()
        self._server.server_close()


ADAPTER = '''
import socket, threading, uuid
WRONG, TOLD = config["options"].get("wrong"), config["options"].get("told")
host, port = config["endpoints"][0]
class Lock:
    """Asks the server, one connection, one time-out."""
    def __init__(self):
        self.owner = uuid.uuid4().hex
        self.turn = threading.Lock()
        self.connection = None
    def ask(self, do):
        with self.turn:
            try:
                if self.connection is None:
                    try:
                        self.connection = socket.create_connection((host, port), config["operation_seconds"])
                    except OSError as error:
                        raise OSError("connect: %s" % error)
                    self.file = self.connection.makefile("rw")
                print(json.dumps({"do": do, "owner": self.owner, "ttl": config["ttl"]}), file=self.file, flush=True)
                return json.loads(self.file.readline())
            except (OSError, ValueError):
                if self.connection is not None:
                    self.connection.close()
                self.connection = None
                raise
lock, grant, holding = Lock(), 0, False
reported = 0
def keep():
    global reported
    while True:
        time.sleep(config["ttl"] / 6)
        if holding and WRONG != "renewals-keep":
            sent = now()
            try:
                done = lock.ask("renew")["done"]
            except (OSError, ValueError):
                continue
            if WRONG == "frozen-between-write-and-read":  # it reports now and then, as if that were when
                if now() < reported + 1.2 * config["ttl"]:
                    continue
                reported = sent = now()
            if done and WRONG != "tells-renewals" and holding:
                say(renewed=True, of=grant, at=sent, proves=True)
errors = {"busy": "fail", "not held": "fail", "connect": "fail", "*": "info"}
if WRONG == "doubts-what-was-sent":
    errors["timed out"] = "fail"
if WRONG == "refusals-are-certain":
    errors["busy"] = "info"
if WRONG == "errors-are-no-success":
    errors["connect"] = errors["timed out"] = "ok"
say(hello={**HELLO, "renewals": "told" if TOLD else "asked", "errors": errors})
if TOLD:
    threading.Thread(target=keep, daemon=True).start()
def acquire(command):
    global grant, holding, reported
    lock.owner = uuid.uuid4().hex
    end = time.monotonic() + command["wait"]
    while True:
        sent = now()
        done = lock.ask("acquire")
        if WRONG == "counts-from-the-request":
            sent = now()
        if done["done"] or (WRONG == "excludes" and config["process"]):
            grant, holding, reported = command["id"], True, now()
            token = 7 if WRONG == "tokens-rise" else done.get("token")
            return dict(type="ok", since={"at": sent}, token=token)
        if time.monotonic() > end or WRONG == "gets-the-lock":
            return dict(type=errors["busy"], error="busy")
        time.sleep(0.02)
def other(word):
    global holding
    holding = holding and word == "renew"
    if WRONG == "frees-the-lock" and word == "release":
        return dict(type="ok", proves=True)
    if WRONG == "leaves-others-alone" and word == "release":
        lock.owner = "whoever"
        return dict(type="ok" if lock.ask(word)["done"] else "fail")
    if lock.ask(word)["done"] or WRONG == "claims-no-proof":
        return dict(type="ok", proves=True)
    return dict(type="fail", error="not held", held=False)
for command in commands():
    try:
        if WRONG == "gets-the-lock" and command["do"] == "acquire":
            raise OSError("no idea how")
        if WRONG == "renewals-keep" and command["do"] == "renew":
            said = dict(type="ok")
        else:
            said = acquire(command) if command["do"] == "acquire" else other(command["do"])
    except (OSError, ValueError) as error:
        text = str(error) or "what"
        said = dict(type=next((errors[key] for key in errors if text.startswith(key)), "info"), error=text)
        if WRONG == "held-is-the-service-s-word" and command["do"] == "release":
            said = dict(type="fail", error="not held, I think", held=False)
        if said["type"] == "ok":
            del said["error"]
    say(id=command["id"], **said)
if WRONG == "leaves-at-the-end":
    while True: time.sleep(1)
if WRONG == "leaves-nothing" and os.fork() == 0:
    os.setsid()
    time.sleep(600)
'''
"""An adapter for it. `options`: `told`, whether it renews by itself and says so; `wrong`, the rule that it breaks."""
