"""A heartbeat that outlives the release: it beats on until the next grant. A service that compares owners refuses it;
one that doesn't keeps the lock for it.
"""

from fencepost_adapter import Fail, ok, run

from workloads.adapters.zoo.right import Right


class LateHeartbeat(Right):
    def granted(self, answer, sent):
        self.stop.set()
        return super().granted(answer, sent)

    def release(self):
        if "released" not in self.ask(self.hand, "release", self.owner):
            raise Fail("not held: another has it, or nobody", held=False)
        return ok(proves=True)


run(LateHeartbeat)
