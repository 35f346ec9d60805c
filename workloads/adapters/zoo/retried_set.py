"""A request that got no answer is tried again under another name, as a library does that draws a value for each SET NX.

If the first one had succeeded after all, the lock is held by a name that nobody has any more; and the second one is
told that another has it, which this takes for the whole truth.
"""

from fencepost_adapter import Fail, run

from workloads.adapters.zoo.right import Right


class RetriedSet(Right):
    def unanswered(self, error):
        self.owner = self.a_name()
        return {}

    def leave(self, doubt):
        raise Fail("busy: another has it")


run(RetriedSet)
