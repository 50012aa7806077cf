"""Machines in network namespaces of Linux, on one switch, and partitions between them. Needs no root."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, Literal

import pytest

Lost = Literal["all", "requests", "answers"]
"""What a partition takes: everything that a machine sends and receives, one of the two alone."""

_TOOLS: Final = ("unshare", "nsenter", "ip")
_NOBODY: Final = "02:00:00:00:00:ff"
"""The hardware address of no machine: the switch carries what is sent there, and nobody takes it."""
_LISTEN: Final = """
import socket, sys
line, listener = socket.socket(fileno=int(sys.argv[1])), socket.create_server(("127.0.0.1", int(sys.argv[2])))
socket.send_fds(line, [b"."], [listener.fileno()])
"""


class _Namespace:
    """A network namespace, kept by a process that does nothing."""

    def __init__(self, command: Sequence[str]) -> None:
        """`command` enters the namespace, and then runs what follows it."""
        self._keeper = subprocess.Popen(
            [*command, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        assert self._keeper.stderr is not None
        try:
            self._keeper.stdin.write(b"\n")
            self._keeper.stdin.flush()
            is_made = self._keeper.stdout.readline() == b"\n"
        except BrokenPipeError:
            is_made = False
        if not is_made:
            why = self._keeper.stderr.read().decode().strip()
            self.close()
            pytest.skip(f"needs network namespaces for users, and there are none: {why}")

    @property
    def pid(self) -> int:
        return self._keeper.pid

    @property
    def inside(self) -> list[str]:
        """What runs the command that follows it inside."""
        return ["nsenter", f"--target={self.pid}", "--user", "--net", "--preserve-credentials"]

    def configure(self, *commands: str) -> None:
        """Perform commands of `ip`."""
        done = subprocess.run(
            [*self.inside, "ip", "-batch", "-"], input="\n".join(commands), capture_output=True, text=True
        )
        assert done.returncode == 0, f"{commands}: {done.stderr}"

    def close(self) -> None:
        """The namespace is gone with the last process inside."""
        self._keeper.kill()
        self._keeper.communicate()


class Machine(_Namespace):
    """A network namespace with an address, which processes believe to be a machine of its own."""

    def __init__(self, switch: _Namespace, number: int) -> None:
        super().__init__([*switch.inside, "unshare", "--net"])
        self.number = number
        self.address, self.hardware = f"10.77.0.{number}", f"02:00:00:00:00:{number:02x}"

    @property
    def alone(self) -> list[str]:
        """What runs the command that follows it inside, with process numbers that mean nothing elsewhere.

        By these, a process knows whether another one is on the same machine.
        """
        return [*self.inside, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]

    @property
    def unprivileged(self) -> list[str]:
        """What runs the command that follows it inside, for programs that do not run as root."""
        return [*self.inside, "unshare", "--user", "--map-user=1000", "--map-group=1000"]

    def listener(self, port: int) -> socket.socket:
        """A socket that listens on 127.0.0.1 of this machine, for this process to accept from."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            arguments = [sys.executable, "-IS", "-c", _LISTEN, str(theirs.fileno()), str(port)]
            subprocess.run([*self.inside, *arguments], pass_fds=[theirs.fileno()], check=True)
            _, descriptors, *_ = socket.recv_fds(ours, 1, 1)
        return socket.socket(fileno=descriptors[0])


class Network:
    """A switch, and machines with a cable to it each. The first is the one that the others need."""

    def __init__(self, switch: _Namespace, machines: Sequence[Machine]) -> None:
        self._switch, self._machines = switch, machines
        switch.configure(
            "link add switch type bridge",
            "link set switch up",
            *(
                f"link add cable{one.number} type veth peer name eth0 address {one.hardware} netns {one.pid}"
                for one in machines
            ),
            *(f"link set cable{one.number} master switch up" for one in machines),
        )
        for one in machines:
            one.configure(
                "link set lo up",
                "link set eth0 up",
                f"address add {one.address}/24 dev eth0",
                *(self._way_to(other, other.hardware) for other in machines if other is not one),
            )

    @property
    def server(self) -> Machine:
        return self._machines[0]

    @property
    def hosts(self) -> Sequence[Machine]:
        return self._machines[1:]

    def cut(self, host: Machine, lost: Lost) -> None:
        """Lose what it sends to the server, or is sent by it, or both: nobody hears of that."""
        if lost == "all":
            self._switch.configure(f"link set cable{host.number} down")
        elif lost == "requests":
            host.configure(self._way_to(self.server, _NOBODY))
        else:
            self.server.configure(self._way_to(host, _NOBODY))

    def heal(self) -> None:
        """Everybody reaches everybody."""
        self._switch.configure(*(f"link set cable{one.number} up" for one in self.hosts))
        for one in self.hosts:
            one.configure(self._way_to(self.server, self.server.hardware))
        self.server.configure(*(self._way_to(one, one.hardware) for one in self.hosts))

    @staticmethod
    def _way_to(other: Machine, hardware: str) -> str:
        return f"neighbour replace {other.address} lladdr {hardware} dev eth0 nud permanent"


@contextmanager
def network(hosts: int) -> Iterator[Network]:
    """A server and so many hosts. Skips the test where the system does not allow that."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"needs {', '.join(missing)}, which this system does not have")
    with ExitStack() as stack:
        switch = _Namespace(["unshare", "--user", "--map-root-user", "--net"])
        stack.callback(switch.close)
        machines = []
        for number in range(1, hosts + 2):
            machines.append(Machine(switch, number))
            stack.callback(machines[-1].close)
        probe = subprocess.run([*machines[0].alone, "true"], capture_output=True, text=True)
        if probe.returncode:
            pytest.skip(f"needs process namespaces for users, and there are none: {probe.stderr.strip()}")
        yield Network(switch, machines)
