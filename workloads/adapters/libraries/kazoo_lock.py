# /// script
# dependencies = ["kazoo==2.11.0"]
# ///
"""The Lock recipe of kazoo: an ephemeral sequential node; it lasts as long as the session, which kazoo keeps by itself.

Options: `fresh` = true, a Lock object of its own for each acquire.
"""

import kazoo
from fencepost_adapter import Adapter, Fail, ok, run
from kazoo.client import KazooClient, KazooState


class KazooLock(Adapter):
    library, version = "kazoo", kazoo.__version__
    renewals = "unseen"  # protocol/connection.py, _connect_loop: pings, of which nobody is told
    errors = {
        # recipe/lock.py, _inner_acquire: another node came before ours until the time was over. What is left of ours is
        # deleted then; _best_effort_cleanup swallows an error of that.
        "LockTimeout": "fail",
        # recipe/lock.py, acquire: False where its retries ended (RetryFailedError): the node may have been made.
        "gave up": "info",
        # exceptions.py, ConnectionLoss and its like: nobody knows what became of the request.
        "*": "info",
    }

    def open(self, config):
        hosts = ",".join(f"{host}:{port}" for host, port in config.endpoints)
        self.client = KazooClient(hosts=hosts, timeout=config.ttl)
        self.client.add_listener(self.changed)
        self.client.start_async()
        self.path, self.fresh, self.lock = f"/{config.lock}", bool(config.options.get("fresh")), None

    def changed(self, state):
        # client.py, _session_callback: LOST where the server has answered that the session is over.
        if state == KazooState.LOST and self.grant:
            self.lost("expired")

    def acquire(self, wait):
        if self.lock is None or self.fresh:
            self.lock = self.client.Lock(self.path)
        if not self.lock.acquire(timeout=wait):
            raise Fail("gave up: not acquired, and why is not said")
        return ok()

    def release(self):
        self.lock.release()
        return ok()  # recipe/lock.py, _inner_release: True also where the node is gone (NoNodeError), so no proof


run(KazooLock)
