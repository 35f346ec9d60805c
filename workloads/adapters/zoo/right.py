"""The right one: an adapter of the zoo's server that renews by itself. The others here are as this, but for one mistake
each.
"""

import os
import threading
import time

from fencepost_adapter import Adapter, Fail, now, ok, run

from workloads.zoo.asking import AskError, Asking

STOPS = 0.9
"""A keeper that got no answer says `lost` after this share of the ttl: before anybody else can have the lock."""


class Right(Adapter):
    library, version = "zoo", "1"
    renewals, tokens = "told", True
    errors = {"busy": "fail", "not held": "fail", "AskError: connect": "fail", "*": "info"}

    def open(self, config):
        self.config, self.ttl = config, config.ttl
        self.hand, self.heart = Asking(*config.endpoints[0]), Asking(*config.endpoints[0])
        self.stop, self.keeper = threading.Event(), None

    def ask(self, connection, do, owner, more=0.0, **keys):
        seconds = min(self.config.operation_seconds + more, keys.pop("within", 1e9))
        return connection.ask(seconds, do=do, lock=self.config.lock, owner=owner, **keys)

    def a_name(self):
        return f"a{self.config.process}-{os.urandom(8).hex()}"

    def acquire(self, wait):
        self.owner, until, doubt = self.a_name(), time.monotonic() + wait, None
        while (left := until - time.monotonic()) > 0:
            sent, pause = now(), min(left, self.ttl / 4)
            try:
                answer = self.ask(self.hand, "acquire", self.owner, pause, ttl=self.ttl, wait=pause)
            except AskError as error:
                answer = self.unanswered(error)
                doubt = error if error.sent else doubt
                time.sleep(0.05)
            if "granted" in answer:
                return self.granted(answer, sent)
        return self.leave(doubt)

    def unanswered(self, error):
        return {}  # it is asked again, as the same owner: what was granted comes back

    def granted(self, answer, sent):
        self.stop = threading.Event()
        arguments = (self.owner, self.grant, sent, self.stop)
        self.keeper = threading.Thread(target=self.keep, args=arguments, daemon=True)
        self.keeper.start()
        return ok(token=answer["granted"], ttl=self.ttl, since=sent)

    def leave(self, doubt):
        try:
            self.ask(self.hand, "release", self.owner)
        except AskError as error:
            raise doubt or error from error
        raise Fail("busy: another has it")

    def keep(self, owner, grant, sent, stop):
        pause = self.ttl / 3
        while not stop.wait(pause):
            begun = now()
            left = sent + STOPS * self.ttl - begun
            if left <= 0:
                return self.lost("deadline", of=grant)
            try:
                answer = self.ask(self.heart, "renew", owner, ttl=self.ttl, within=left)
            except AskError:
                pause = min(self.ttl / 10, max(0.0, sent + STOPS * self.ttl - now()))
                continue
            if "renewed" not in answer:
                return self.lost("expired", of=grant)
            self.renewed(begun, proves=True, of=grant)
            sent, pause = begun, self.ttl / 3
        return None

    def release(self):
        self.stop.set()
        self.keeper.join()
        if "released" not in self.ask(self.hand, "release", self.owner):
            raise Fail("not held: another has it, or nobody", held=False)
        return ok(proves=True)


if __name__ == "__main__":
    run(Right)
