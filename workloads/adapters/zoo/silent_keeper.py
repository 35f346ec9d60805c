"""A keeper that dies in silence: one renewal goes wrong, its thread ends, and whoever holds the lock is not told."""

from fencepost_adapter import now, run

from workloads.adapters.zoo.right import Right


class SilentKeeper(Right):
    def keep(self, owner, grant, sent, stop):
        while not stop.wait(self.ttl / 3):
            begun = now()
            if "renewed" not in self.ask(self.heart, "renew", owner, ttl=self.ttl):  # an AskError ends the thread
                return self.lost("expired", of=grant)
            self.renewed(begun, proves=True, of=grant)
        return None


run(SilentKeeper)
