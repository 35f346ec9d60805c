"""A time-out taken for success: nobody said no, so the lock is mine."""

from fencepost_adapter import run

from workloads.adapters.zoo.right import Right


class TimeOutTaken(Right):
    def unanswered(self, error):
        return {"granted": None}


run(TimeOutTaken)
