"""Two hosts and a server in namespaces of their own, and runs that these hosts contend for."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from durability.shapes import Oracle
from durability.sweep import Lane, Run, Worker
from durability.worker import Moment, Task
from support.namespaces import Machine, Network, network
from support.patience import PATIENCE
from support.proxy import proxy_to
from support.servers import postgres_on, redis_on

from fastroai.testing import LedgerEntry, ModelServer

LEASE: Final = 1.0
TIMEOUT: Final = 0.4
"""Seconds that the stores of hosts have for an answer."""
SOON: Final = 0.1
"""Seconds between two attempts, of hosts at runs and of runs at writes."""
LOST_RUN: Final = frozenset({"RunTakenOver", "RunStoreUnavailable"})
"""What a host may say whose run goes on elsewhere, or later."""
TRY_AGAIN: Final = LOST_RUN | {"RunInProgress", "RunExists", "QuestionClosed"}
"""What a host may say that does not know what others have done, or what it has done itself."""


class Host:
    """A process on a machine of its own, which makes one run at a time."""

    def __init__(self, machine: Machine, server: ModelServer, folder: Path, oracle: Oracle) -> None:
        self.machine, self.name = machine, f"host-{machine.number}"
        self.worker = Worker(server, folder, oracle, inside=machine.alone, name=self.name)
        self._thread = ThreadPoolExecutor(1)

    def begin(self, task: Task) -> Future[dict[str, Any]]:
        """Work at a run; the future has what came of it."""
        own = replace(task, outcome=f"{task.outcome}.{self.name}")
        return self._thread.submit(self.worker.tell, own)

    def go_on(self) -> Future[dict[str, Any]]:
        """Do what is left of a run at which it has halted."""
        return self._thread.submit(self.worker.go_on)

    def has_sent(self, entry: LedgerEntry) -> bool:
        return self.name in (entry.headers.get("authorization", "") + entry.headers.get("x-api-key", ""))

    def close(self) -> None:
        self.worker.close()
        self._thread.shutdown()


@dataclass
class Fleet:
    """Hosts, the network that they are on, and a store of each kind."""

    net: Network
    server: ModelServer
    folder: Path
    hosts: Sequence[Host]
    lanes: dict[str, Lane] = field(default_factory=dict)
    """By kind of store: how this process reaches it, which no partition is in the way of."""
    places: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """... and how hosts do."""

    def add_store(self, kind: str, addresses: tuple[str, str]) -> None:
        remote, local = addresses
        name = f"test_{uuid.uuid4().hex}"
        self.places[kind] = kind, remote, name
        self.lanes[kind] = Lane(self.hosts[0].worker, (kind, local, name))


@contextmanager
def fleet_in(folder: Path) -> Iterator[Fleet]:
    """Two hosts, the servers that both need, and a model server that every host reaches at any time."""
    with ExitStack() as stack:
        net = stack.enter_context(network(2))
        server = stack.enter_context(ModelServer())
        server.rule(None, oracle := Oracle())
        address = "127.0.0.1", int(server.url.rpartition(":")[2])
        hosts = []
        for machine in net.hosts:
            stack.enter_context(proxy_to(address, machine.listener(address[1])))
            hosts.append(host := Host(machine, server, folder, oracle))
            stack.callback(host.close)
        fleet = Fleet(net, server, folder, hosts)
        fleet.add_store("redis", stack.enter_context(redis_on(net.server)))
        fleet.add_store("postgres", stack.enter_context(postgres_on(net.server)))
        for lane in fleet.lanes.values():
            stack.callback(lane.close)
        for host in hosts:
            host.worker.wait_until_ready()
        yield fleet


class Contested(Run):
    """A run that several hosts work at, over a network."""

    def __init__(self, fleet: Fleet, kind: str, shape: str) -> None:
        self.calm = fleet.lanes[kind].calm(shape)
        """What it does undisturbed."""
        super().__init__(fleet.lanes[kind], shape, "sync")
        self._place = fleet.places[kind]
        self._is_known = False
        """Whether there is a run to resume, as far as anybody has been told."""

    @property
    def task(self) -> Task:
        return replace(
            super().task, store=self._place, lease=LEASE, timeout=TIMEOUT, pause=SOON, resumed=self._is_known
        )

    def halted(self, host: Host, at: tuple[Moment, int]) -> bool:
        """Begin the run on a host, which halts there; whether it came there."""
        first = host.begin(replace(self.task, halt_at=at)).result(PATIENCE)
        self._is_known = True
        return bool(first.get("halted"))

    def attempt(self, host: Host, halt_at: tuple[Moment, int] | None = None) -> Future[dict[str, Any]]:
        """Work at it, from what is on record."""
        self.look()
        return host.begin(replace(self.task, halt_at=halt_at))

    def look(self) -> None:
        """Note what is on record, and then what hosts have noted that they do."""
        self.parts.append((self.lane.observe(self.run_id), self.noted()))

    def came_to(self, outcome: dict[str, Any]) -> bool:
        """Whether that is the end of the run. Otherwise somebody tries again."""
        if outcome.get("not_found") or outcome.get("raised") == "RunExists":
            self._is_known = not outcome.get("not_found")
            return False
        self._is_known = True
        if "error" not in outcome:
            return True
        assert outcome["raised"] in TRY_AGAIN, outcome["error"]
        if outcome["raised"] in LOST_RUN:
            self.kills += 1
        return False

    def bring_to_an_end(self, host: Host) -> dict[str, Any]:
        """Have a host work at it until it has ended."""
        end = time.monotonic() + PATIENCE
        while not self.came_to(outcome := self.attempt(host).result(PATIENCE)):
            assert time.monotonic() < end, f"it does not end: {outcome}"
            if outcome.get("raised") == "RunInProgress":
                self.parts.pop()  # nobody has taken it up
            time.sleep(SOON)
        self.look()
        return outcome

    # --- what must be true ---

    def on_record(self) -> tuple[Any, ...]:
        """Everything that the store has of it."""
        return self.lane.observe(self.run_id).entries, self.lane.header(self.run_id)

    def done_outside(self, host: Host | None = None) -> Counter[str]:
        """The requests, of a host or of all, and the side effects and tools of all."""
        sent = Counter(
            "request" for entry in self.lane.server.ledger.entries if host is None or host.has_sent(entry)
        )
        if host is None:
            sent.update(kind for kind, *_ in self.noted() if kind in ("effect", "tool"))
        return sent
