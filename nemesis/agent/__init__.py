"""The agent: applies faults on one node, measures them there, and undoes them whatever happens.

Standard library only, any python3 from 3.7 on, run as root on the node. All modules of this package are sent as one
piece over the stream (`nemesis.parcel`) that the agent is then spoken to (`nemesis.link`), in JSON lines:
`{"id": 1, "op": "freeze", …}` is answered by `{"id": 1, "ok": {…}}` or `{"id": 1, "error": "a sentence"}`. Answers
come in any order. Commands that look (http, tcp, probe, heard) run side by side; commands that change something run one
after the other.

It is a dead man's switch, in three layers, because a fault that outlives its trial is worse than no fault:

1. When stdin ends, or a signal asks it to end, the agent undoes what it holds, verifies that, and leaves.
2. When the agent itself is killed, its *guardian*, a child that does nothing but wait for that, undoes what the journal
   says was held.
3. When the guardian is gone too, the next agent on the node undoes what the journal says, and tells so in `hello`.

The journal is written before anything is applied. Every object in it is safe to undo twice, or when nothing was done.
Times are CLOCK_BOOTTIME in ns, the clock that no fault of ours moves.

From the bottom up, each room importing only from those before it: `base`, `arguments`, `processes`, `roles`; `journal`,
`firewall`, `signals`, `requests`, `probes`, `connections`, `clock/`, `watching`; `commands`, which ties them together;
`stream`; `start`. `loader` stands on its own: it unpacks the others.
"""
