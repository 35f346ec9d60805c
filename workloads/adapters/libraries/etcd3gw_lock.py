# /// script
# dependencies = ["etcd3gw==2.7.0"]
# ///
"""The Lock of etcd3gw: a lease and a key, made anew at each try; one try at a time, so waiting is asking again.
Options: `client`, further arguments for the client, which has no time-out by itself; `pause`, seconds between tries.
"""

import time
from importlib.metadata import version as version_of

import etcd3gw
from fencepost_adapter import Adapter, Fail, now, ok, run


class Etcd3gwLock(Adapter):
    library, version = "etcd3gw", version_of("etcd3gw")
    errors = {
        # lock.py, Lock.acquire: the transaction did not succeed, for it found the key (create_revision above 0).
        "taken": "fail",
        # lease.py, Lease.refresh: -1 where etcd's answer has no TTL, as it is for a lease that is gone.
        "lease gone": "fail",
        # lock.py, Lock.release: the transaction did not succeed, for the key has not our uuid.
        "not ours": "fail",
        # client.py, post: ConnectionFailedError with the words of urllib3, which had no connection to send it by.
        "not sent": "fail",
        # client.py, post: the others of that name, ConnectionTimeoutError and the rest don't say whether it was done.
        "*": "info",
    }

    def open(self, config):
        self.client = etcd3gw.client(*config.endpoints[0], **config.options.get("client", {}))
        self.name, self.ttl, self.pause = config.lock, int(config.ttl), config.options.get("pause", 0.1)

    def acquire(self, wait):
        self.lock, end, tries = self.client.lock(self.name, ttl=self.ttl), now() + wait, 0
        while True:
            since, tries = now(), tries + 1
            try:
                if self.lock.acquire():  # lock.py: makes a lease first, and leaves it where the key is there
                    return ok(ttl=self.ttl, since=since, leases=tries)
            except etcd3gw.exceptions.ConnectionFailedError as error:
                said = error.detail_text or ""  # exceptions.py: its own text is empty
                raise (Fail(f"not sent: {said}") if "NewConnectionError" in said else error) from error
            if now() >= end:
                raise Fail("taken: the key is there")
            time.sleep(self.pause)

    def renew(self):
        if self.lock.refresh() <= 0:
            raise Fail("lease gone: refresh said so", held=False)
        return ok(proves=True)  # the key hangs on the lease that etcd says lives

    def release(self):
        if not self.lock.release():
            raise Fail("not ours: the key is another's, or gone", held=False)
        return ok(proves=True)  # the transaction compared


run(Etcd3gwLock)
