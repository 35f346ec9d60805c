"""What runs inside the namespaces: the stub, the site's pid 1, and the nodes' pid 1s.

Standard library only, and nothing of the harness: it is started by its path with `python3 -I -S`, in milliseconds.
For that no dataclasses, pathlib, shutil or ipaddress: together they take as long as all the rest.
From the bottom up: `kernel` (system calls), `wire` (messages over sockets), `netlink`, `roots` (root file systems),
`programs` (fork and exec), `service`, `node`, `site`, `start`.

harness → **stub** → **site pid 1** → **node pid 1** → the agent, contenders, the service. Each is the pid 1 of a
namespace of its own, so that its end, however it comes, is the end of all below it. The stub stays outside: it kills
the site when the harness is gone.
"""
