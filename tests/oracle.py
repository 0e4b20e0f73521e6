"""A slow, plain simulator of docs/model.md, to compare Headway's engine with.

It is a second, independent reading of the specification and shares no code with the engine, so
a mistake in one shows as a difference in some start, finish or task, to the nanosecond. It is
slow on purpose: at each instant it looks at every job, GPU and message, and recomputes loads,
orders and contention from scratch. No heap, no cache, no merged tasks: what is easy to check
against the text cannot hide the mistakes that speed-ups make.

Read it beside docs/model.md: `Simulation.instant` is the section "One instant", and each of its
five steps is one method. Times are integer nanoseconds, sizes bytes, costs nanoseconds a byte.
Inputs are taken as valid. Of a job's graph it reads the entries alone and expands them itself
(`Expansion`).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Link = tuple[str, int, int]
"""("rail", server, rail) or ("uplink", tier, switch)."""


@dataclass(frozen=True)
class OracleJob:
    """One row of the workload."""

    arrival_ns: int
    gpus: int
    iterations: int
    forward_ns: int
    backward_ns: int
    gradient_bytes: int
    memory_bytes: int
    graph: Any = None  # with entries `tasks` and `messages`; the three fields above are then 0
    priority: int = 0
    exclusive: bool = False  # takes only GPUs that hold nobody, and they take nobody else


@dataclass(frozen=True, order=True)
class OracleTask:
    """A task that ran: `kind` is "forward", "backward", "task" or "message".

    A message has gpu -1. What a graph stands for is numbered: tasks first, by entry and rank, then
    messages, by entry and group; tasks and messages of other jobs have -1.
    """

    start_ns: int
    end_ns: int
    kind: str
    job: int
    iteration: int
    gpu: int
    number: int = -1


@dataclass(frozen=True)
class OracleOutcome:
    """Each job's placement time, finish and GPUs (ascending), and every task, sorted."""

    start_ns: list[int]
    finish_ns: list[int]
    gpus: list[tuple[int, ...]]
    tasks: list[OracleTask]


@dataclass(frozen=True)
class Node:
    """A task or a message of a graph; `entry` is the one that it comes from."""

    number: int
    ranks: frozenset[int]
    entry: Any
    place: int  # of the entry in its list
    is_message: bool


class Expansion:
    """The tasks and messages that a graph's entries stand for, and what each waits for."""

    def __init__(self, graph: Any) -> None:
        self.nodes: list[Node] = []
        for place, entry in enumerate(graph.tasks):
            for rank in sorted(entry.ranks):
                self.add(frozenset({rank}), entry, place, False)
        for place, entry in enumerate(graph.messages):
            for group in entry.groups:
                self.add(frozenset(group), entry, place, True)
        self.waits = {node: self.waits_of(node) for node in self.nodes}
        self.behind: dict[Node, int] = {}

    def add(self, ranks: frozenset[int], entry: Any, place: int, is_message: bool) -> None:
        self.nodes.append(Node(len(self.nodes), ranks, entry, place, is_message))

    def waits_of(self, node: Node) -> set[Node]:
        """What must end before a node: by the order of its stream or channel, and by `after`."""
        waits = {
            other
            for other in self.nodes
            if other.entry.name in node.entry.after and other.ranks & node.ranks
        }
        for rank in node.ranks:
            before = [other for other in self.nodes[: node.number] if rank in other.ranks]
            before = [other for other in before if other.is_message == node.is_message]
            if node.is_message:
                before = [other for other in before if other.entry.channel == node.entry.channel]
            waits |= set(before[-1:])
        return waits

    def behind_ns(self, node: Node, fastest_ns: list[int]) -> int:
        """The longest chain of tasks after a node, from the time of each entry's tasks."""
        if node not in self.behind:
            followers = [other for other in self.nodes if node in self.waits[other]]
            self.behind[node] = max(
                (
                    (0 if other.is_message else fastest_ns[other.place])
                    + self.behind_ns(other, fastest_ns)
                    for other in followers
                ),
                default=0,
            )
        return self.behind[node]

    def length_ns(self, time_ns: dict[Node, int]) -> int:
        """When the last node ends if each takes so long and starts as soon as it is ready."""
        end: dict[Node, int] = {}
        while len(end) < len(self.nodes):
            for node in self.nodes:
                if node not in end and all(other in end for other in self.waits[node]):
                    ready = max((end[other] for other in self.waits[node]), default=0)
                    end[node] = ready + time_ns[node]
        return max(end.values())


@dataclass(eq=False)
class Message:
    """An admitted message. cost = 0: admitted at this instant and not yet rated."""

    admitted_ns: int
    end_of_latency_ns: int
    remaining_bytes: float
    last_change_ns: int
    number: int  # how many were admitted before it
    cost: float = 0.0  # ns for a byte
    end_ns: int = -1


@dataclass(eq=False)
class Transfer:
    """What one message of an iteration has to send between servers, from ready to end.

    It is sent as one message or as a chain of buckets.
    """

    job: "Job"
    number: int  # of its node; -1 for the all-reduce of a job without a graph
    servers: int
    links: dict[Link, float]  # and the part of its bytes that each carries
    unsent_bytes: int  # without what is on the network
    latency_ns: int
    v: float  # how much dearer a byte is among this many servers than where b was measured
    message: Message | None = None  # on the network
    bucket_bytes: int = 0  # what it is to carry
    next_bytes: int = -1  # what the next message carries; decided at the instant that it is ready
    not_before_ns: int = -1  # the time that an admission named, until it says something else


@dataclass(eq=False)
class Job:
    """A job's state. It is held by its GPUs from its placement to its finish."""

    index: int
    spec: OracleJob
    # On each type of GPU: forward and backward, or the time of each entry of its graph's tasks.
    times_ns: list[tuple[int, ...]]
    gpus: tuple[int, ...] = ()
    types: frozenset[int] = frozenset()  # of its GPUs
    servers: frozenset[int] = frozenset()
    tried: bool = False  # whether a placement has been asked about it
    start_ns: int = -1
    finish_ns: int = -1
    iterations_done: int = 0
    # For each of its GPUs, this iteration's compute tasks that have not ended, in order.
    compute: dict[int, list[str]] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)  # ready or on the network
    expansion: Expansion | None = None  # of its graph
    ended: set[Node] = field(default_factory=set)  # in this iteration
    unit_ns: int = -1  # with a graph, once placed: u_J
    service_ns: int = -1  # with a graph, once placed: s_J

    @property
    def iterations_left(self) -> int:
        return self.spec.iterations - self.iterations_done

    @property
    def compute_ns(self) -> int:
        """u_J: before it is placed on the fastest type, then on its slowest."""
        if self.expansion is not None:
            if self.gpus:
                return self.unit_ns
            fastest = [min(times) for times in zip(*self.times_ns, strict=True)]
            return self.expansion.length_ns(
                {n: 0 if n.is_message else fastest[n.place] for n in self.expansion.nodes}
            )
        if not self.gpus:
            return min(sum(times) for times in self.times_ns)
        return max(sum(self.times_ns[kind]) for kind in self.types)

    @property
    def computed(self) -> bool:
        """Whether all the backwards of this iteration are done."""
        return not any(self.compute.values())

    def ready_task(self, gpu: int) -> tuple[str, int, int] | None:
        """The kind, number and entry of the compute task that is ready on a GPU, if there is one.

        A forward counts as entry 0, a backward as entry 1.
        """
        if gpu not in self.gpus:
            return None
        if self.expansion is None:
            kinds = self.compute[gpu]
            return (kinds[0], -1, int(kinds[0] == "backward")) if kinds else None
        rank = self.gpus.index(gpu)
        for node in self.expansion.nodes:
            if rank in node.ranks and not node.is_message and node not in self.ended:
                ready = self.expansion.waits[node] <= self.ended
                return ("task", node.number, node.place) if ready else None
        return None


def mix(x: int) -> int:
    """Scramble 64 bits (the finaliser of splitmix64)."""
    x %= 2**64
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 % 2**64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def shuffle_key(seed: int, job: int, gpu: int) -> int:
    """A GPU's place in the seeded shuffle that `rand` makes for a job."""
    golden = 0x9E3779B97F4A7C15
    return mix(mix(mix(seed + golden) + (job + 1) * golden) + (gpu + 1) * golden)


@dataclass(eq=False)
class Simulation:
    """The cluster at one instant."""

    jobs: list[Job]
    server: list[int]  # of each GPU
    server_type: list[int]
    rails: list[int]  # of each server
    # Lowest first: the switch of each server, and by how much its uplink is oversubscribed.
    tiers: list[tuple[Sequence[int], float]]
    memory_bytes: list[int]  # of a GPU of each type
    exclusive: bool  # every job is
    a_ns: int
    b: float
    eta: float
    contends: bool
    fair: bool  # whether links are shared by max-min fairness
    ring: int | None  # the servers among which a and b were measured
    placement: str
    priority: str
    admission: str
    needed_first: bool
    seed: int
    bucket_bytes: int | None
    buckets_if_shared: bool  # whether messages are cut only if they share a link

    to_arrive: list[Job] = field(default_factory=list)
    queue: list[Job] = field(default_factory=list)
    running: dict[int, OracleTask] = field(default_factory=dict)  # GPU -> its compute task
    tasks: list[OracleTask] = field(default_factory=list)
    admitted: int = 0  # messages so far

    # Remaining service and order.

    def s_ns(self, job: Job) -> int:
        """s_J: one iteration's forward and backward, and its all-reduce across servers."""
        if job.expansion is not None:
            return job.service_ns if job.gpus else job.compute_ns
        s = job.compute_ns
        if len(job.servers) > 1:
            s += self.alone_ns(job)
        return s

    def alone_ns(self, job: Job) -> int:
        """What its all-reduce takes whole and alone; with a graph, what messages add to u_J."""
        if job.expansion is not None:
            if job.gpus:
                return job.service_ns - job.unit_ns
            messages = sum(node.is_message for node in job.expansion.nodes)
            return messages * self.a_ns + math.floor(self.b * self.gradient_bytes(job))
        n = len(job.servers)
        v = self.v(n) if n > 1 else 1.0
        a = self.a(n) if n > 1 else self.a_ns
        return a + math.floor(v * self.b * job.spec.gradient_bytes)

    def gradient_bytes(self, job: Job) -> int:
        """M of a job; with a graph the sizes of all messages, one rank on each server."""
        if job.expansion is None:
            return job.spec.gradient_bytes
        return sum(self.size(n, 1) for n in job.expansion.nodes if n.is_message)

    def size(self, node: Node, most_ranks_on_a_server: int) -> int:
        """The bytes of the all-reduce that a message of a graph is treated as."""
        factor = {
            "all-reduce": 1.0,
            "reduce-scatter": 1 / 2,
            "all-gather": 1 / 2,
            "all-to-all": most_ranks_on_a_server / 2,
            "send": 1 / 2 if self.ring is None else 1.0,
        }[node.entry.kind]
        return round(factor * float(node.entry.buffer_bytes))

    def a(self, servers: int) -> int:
        """Latency among this many servers."""
        if self.ring is None:
            return self.a_ns
        return round(float(self.a_ns) * float(servers - 1) / float(self.ring - 1))

    def v(self, servers: int) -> float:
        """How much dearer a byte is among this many servers than where b was measured."""
        if self.ring is None:
            return 1.0
        return ((servers - 1) / servers) / ((self.ring - 1) / self.ring)

    def remaining_service(self, job: Job) -> int:
        """L_J."""
        return job.iterations_left * self.s_ns(job) * job.spec.gpus

    def attained_service(self, job: Job) -> int:
        """GPU time of the iterations that have ended."""
        return job.iterations_done * self.s_ns(job) * job.spec.gpus

    def order(self, job: Job) -> tuple[int, ...]:
        """The sort key that stands wherever the specification says "SRSF order"."""
        return -job.spec.priority, *self.order_by_policy(job)

    def order_by_policy(self, job: Job) -> tuple[int, ...]:
        """The order of jobs of one priority."""
        policy, _, quantum_s = self.priority.partition(":")
        match policy:
            case "las":
                key = self.attained_service(job)
            case "2d-las":
                bounds = [factor * (float(quantum_s) * 1e9) for factor in (1, 2, 5)]
                queue = sum(bound <= self.attained_service(job) for bound in bounds)
                entered = job.start_ns if job.gpus else job.spec.arrival_ns
                return queue, entered, job.index
            case "gpu-intensity":
                # Work over sending time, highest first; nothing to send is the highest of all.
                send = float(self.alone_ns(job))
                work = float(job.spec.gpus * job.compute_ns)
                sends = job.spec.gpus > 1 and len(job.servers) != 1
                key = math.floor(send / (send + work) * 2**53) if sends else 0
            case "srsf":
                key = self.remaining_service(job)
            case "srtf":
                key = job.iterations_left * self.s_ns(job)
            case "fifo":
                key = job.spec.arrival_ns
            case "smallest":
                key = job.spec.gpus
            case _:
                raise ValueError(f"unknown priority policy {self.priority!r}")
        return key, job.index

    def held(self) -> list[Job]:
        """The jobs that are placed and not finished."""
        return [job for job in self.jobs if job.gpus and job.finish_ns < 0]

    # One instant.

    def instant(self, t: int) -> None:
        """Everything that happens at t."""
        self.complete(t)
        self.arrive(t)
        self.place(t)
        self.admit(t)
        self.dispatch(t)

    def complete(self, t: int) -> None:
        """Step 1: tasks that end at t, and the iterations and jobs that they finish."""
        for job in self.held():
            for gpu in job.gpus:
                task = self.running.get(gpu)
                if task is not None and task.job == job.index and task.end_ns == t:
                    del self.running[gpu]
                    self.tasks.append(task)
                    if job.expansion is None:
                        job.compute[gpu].remove(task.kind)
                    else:
                        job.ended.add(job.expansion.nodes[task.number])
            for transfer in list(job.transfers):
                self.end_of_bucket(transfer, t)
            if job.expansion is None:
                self.complete_plain(job, t)
            else:
                self.complete_graph(job, t)

    def end_of_bucket(self, transfer: Transfer, t: int) -> None:
        """When one bucket ends and bytes are left, the next is ready at this instant."""
        sent, job = transfer.message, transfer.job
        if sent is None or sent.end_ns != t:
            return
        transfer.message = None
        self.tasks.append(
            OracleTask(
                sent.admitted_ns, t, "message", job.index, job.iterations_done, -1, transfer.number
            )
        )
        if transfer.unsent_bytes > 0:
            return
        job.transfers.remove(transfer)
        if job.expansion is None:
            self.end_iteration(job, t)
        else:
            job.ended.add(job.expansion.nodes[transfer.number])

    def complete_plain(self, job: Job, t: int) -> None:
        """After the last backward comes the all-reduce, which takes no time on a single server."""
        if job.finish_ns >= 0 or not job.computed or job.transfers:
            return
        if len(job.servers) == 1:
            self.end_iteration(job, t)
        else:
            self.make_ready(job, -1, job.gpus, job.spec.gradient_bytes)

    def complete_graph(self, job: Job, t: int) -> None:
        """Make ready what is; an iteration ends with the last of its tasks and messages."""
        assert job.expansion is not None
        self.ready_messages(job)
        if len(job.ended) == len(job.expansion.nodes):
            self.end_iteration(job, t)

    def ready_messages(self, job: Job) -> None:
        """Make the messages of a graph ready that are; on a single server they end at once."""
        assert job.expansion is not None
        changed = True
        while changed:
            changed = False
            for node in job.expansion.nodes:
                asked = any(transfer.number == node.number for transfer in job.transfers)
                if not node.is_message or node in job.ended or asked:
                    continue
                if not job.expansion.waits[node] <= job.ended:
                    continue
                gpus = [job.gpus[rank] for rank in sorted(node.ranks)]
                on = [self.server[gpu] for gpu in gpus]
                if len(set(on)) == 1:
                    job.ended.add(node)
                    changed = True
                else:
                    size = self.size(node, max(on.count(server) for server in on))
                    self.make_ready(job, node.number, gpus, size, node.entry.kind)

    def sent_among(self, job: Job) -> list[Sequence[int]]:
        """Return the GPUs of each message of a placed job that takes time."""
        among: list[Sequence[int]] = [job.gpus]
        if job.expansion is not None:
            messages = [node for node in job.expansion.nodes if node.is_message]
            among = [[job.gpus[rank] for rank in message.ranks] for message in messages]
        return [gpus for gpus in among if len({self.server[gpu] for gpu in gpus}) > 1]

    def rail(self, gpu: int) -> int:
        """The rail of a GPU in its server: the GPUs share the rails in equal blocks."""
        server = self.server[gpu]
        return self.server[:gpu].count(server) * self.rails[server] // self.server.count(server)

    def links_of(self, gpus: Sequence[int]) -> dict[Link, float]:
        """Return the links of a message among these GPUs, and the part of its bytes on each."""
        servers = sorted({self.server[gpu] for gpu in gpus})
        links: dict[Link, float] = {}
        for server in servers:
            ranks = [self.rail(gpu) for gpu in gpus if self.server[gpu] == server]
            links |= {("rail", server, rail): ranks.count(rail) / len(ranks) for rail in ranks}
        for tier, (switch_of, _) in enumerate(self.tiers):
            switches = {switch_of[server] for server in servers}
            if len(switches) > 1:
                links |= {("uplink", tier, switch): 1.0 for switch in switches}
        return links

    def w(self, link: Link) -> float:
        """A byte's cost on a link over that on a rail."""
        kind, tier, switch = link
        if kind == "rail":
            return 1.0
        below = [server for server, of in enumerate(self.tiers[tier][0]) if of == switch]
        factor = 1.0
        for _, oversubscription in self.tiers[: tier + 1]:
            factor *= oversubscription
        return factor / sum(self.rails[server] for server in below)

    def carries(self, link: Link) -> int:
        """How many messages a link carries without one slowing another: 1 on a rail."""
        kind, tier, switch = link
        if kind == "rail":
            return 1
        switches, _ = self.tiers[tier]
        rails = [count for count, of in zip(self.rails, switches, strict=True) if of == switch]
        oversubscription = math.prod(r for _, r in self.tiers[: tier + 1])
        return max(1, math.floor(sum(rails) / oversubscription))

    def make_ready(
        self, job: Job, number: int, gpus: Sequence[int], size: int, kind: str = "all-reduce"
    ) -> None:
        """A message among the ranks on these GPUs is ready."""
        links = self.links_of(gpus)
        servers = {self.server[gpu] for gpu in gpus}
        latency = self.a(len(servers))
        if kind != "all-reduce":
            latency = round(latency / 2)
        v = self.v(len(servers))
        job.transfers.append(Transfer(job, number, len(servers), links, size, latency, v))

    def unit_ns(self, job: Job) -> int:
        """u_J of a placed job with a graph: messages take no time, tasks that on their GPU."""
        assert job.expansion is not None
        time_ns = {}
        for node in job.expansion.nodes:
            time_ns[node] = 0
            if not node.is_message:
                (rank,) = node.ranks
                kind = self.server_type[self.server[job.gpus[rank]]]
                time_ns[node] = job.times_ns[kind][node.place]
        return job.expansion.length_ns(time_ns)

    def end_iteration(self, job: Job, t: int) -> None:
        job.iterations_done += 1
        if job.iterations_left == 0:
            job.finish_ns = t
        else:
            self.begin_iteration(job)

    def begin_iteration(self, job: Job) -> None:
        """Its first tasks are ready; those of a graph's messages that wait for nothing too."""
        if job.expansion is None:
            job.compute = {gpu: ["forward", "backward"] for gpu in job.gpus}
        else:
            job.ended = set()
            self.ready_messages(job)

    def length_alone_ns(self, job: Job) -> int:
        """How long one iteration of a placed job with a graph takes without any other job."""
        spec = replace(job.spec, arrival_ns=0, iterations=1)
        alone = Job(0, spec, job.times_ns, job.gpus, servers=job.servers, start_ns=0)
        alone.expansion = job.expansion
        world = replace(
            self,
            jobs=[alone],
            priority="fifo",
            admission="always",
            needed_first=False,
            bucket_bytes=None,
            buckets_if_shared=False,
            to_arrive=[],
            queue=[],
            running={},
            tasks=[],
            admitted=0,
        )
        world.begin_iteration(alone)
        world.admit(0)
        world.dispatch(0)
        while alone.finish_ns < 0:
            world.instant(world.next_instant())
        return alone.finish_ns

    def arrive(self, t: int) -> None:
        """Step 2: jobs that arrive at t join the queue."""
        self.queue += [job for job in self.to_arrive if job.spec.arrival_ns == t]
        self.to_arrive = [job for job in self.to_arrive if job.spec.arrival_ns > t]

    def place(self, t: int) -> None:
        """Step 3: each queued job is tried once, on the loads as those before it left them."""
        still_queued = []
        some_job_left = any(job.finish_ns == t for job in self.jobs)
        for job in sorted(self.queue, key=self.order):
            if self.placement == "least-delay" and job.tried and not some_job_left:
                still_queued.append(job)
                continue
            job.tried = True
            candidates = self.candidates(job)
            if len(candidates) < job.spec.gpus:
                still_queued.append(job)
                continue
            job.gpus = tuple(sorted(candidates[: job.spec.gpus]))
            job.servers = frozenset(self.server[gpu] for gpu in job.gpus)
            job.types = frozenset(self.server_type[server] for server in job.servers)
            job.start_ns = t
            if job.expansion is not None:
                job.unit_ns = self.unit_ns(job)
                job.service_ns = job.unit_ns
                if len(job.servers) > 1:
                    job.service_ns = self.length_alone_ns(job)
            self.begin_iteration(job)
        self.queue = still_queued

    def admit(self, t: int) -> None:
        """Step 4: admit the messages that are ready, then rate those whose cost changed.

        Jobs are asked about in priority order, the messages of a job by number.
        """
        for transfer in [one for job in self.held() for one in job.transfers]:
            if transfer.message is None and transfer.next_bytes < 0:
                transfer.next_bytes = self.bucket(transfer)
        for job in sorted(self.held(), key=self.order):
            for transfer in sorted(job.transfers, key=lambda one: one.number):
                if transfer.message is None:
                    self.ask(transfer, t)
        fair = self.fair_costs() if self.fair and self.contends else None
        for transfer in self.sending():
            message = transfer.message
            assert message is not None
            by_link = self.cost_of_byte(transfer) if fair is None else fair[transfer]
            cost = transfer.v * by_link
            if cost != message.cost:
                self.rate(message, cost, t)

    def ask(self, transfer: Transfer, t: int) -> None:
        """Ask about one message, once."""
        answer = False if self.is_held_back(transfer) else self.admits(transfer, t)
        transfer.not_before_ns = -1
        if answer is True or (answer is not False and answer <= t):
            size = transfer.next_bytes
            transfer.next_bytes = -1
            transfer.unsent_bytes -= size
            transfer.bucket_bytes = size
            latency = t + transfer.latency_ns
            transfer.message = Message(t, latency, float(size), t, self.admitted)
            self.admitted += 1
        elif answer is not False:
            transfer.not_before_ns = answer

    def is_held_back(self, transfer: Transfer) -> bool:
        """Whether a message of its job that is needed before it is ready or sent on its links."""
        if not self.needed_first or not self.contends:
            return False
        return any(
            self.urgency(other) < self.urgency(transfer)
            and any(link in other.links for link in self.narrow(transfer))
            for other in transfer.job.transfers
        )

    def narrow(self, transfer: Transfer) -> list[Link]:
        """Those of its links that carry one message only."""
        return [link for link in transfer.links if self.carries(link) == 1]

    def urgency(self, transfer: Transfer) -> tuple[int, int]:
        """The lower, the sooner it is needed: by the computing behind it, then by number."""
        expansion = transfer.job.expansion
        if expansion is None:
            return 0, 0
        fastest = [min(times) for times in zip(*transfer.job.times_ns, strict=True)]
        node = expansion.nodes[transfer.number]
        return -expansion.behind_ns(node, fastest), transfer.number

    def dispatch(self, t: int) -> None:
        """Step 5: every idle GPU starts the ready compute task of its first job in order."""
        held = sorted(self.held(), key=self.order)
        for gpu, server in enumerate(self.server):
            if gpu in self.running:
                continue
            first = next((job for job in held if job.ready_task(gpu) is not None), None)
            found = None if first is None else first.ready_task(gpu)
            if first is not None and found is not None:
                kind, number, entry = found
                end = t + first.times_ns[self.server_type[server]][entry]
                done = first.iterations_done
                self.running[gpu] = OracleTask(t, end, kind, first.index, done, gpu, number)

    # A message on the network.

    def cost(self, k: int) -> float:
        """Nanoseconds a byte takes under k-way contention."""
        return k * self.b + (k - 1) * self.eta

    def jobs_on(self, link: Link) -> set[int]:
        """The placed jobs that send on a link in every iteration."""
        found = set()
        for job in self.held():
            groups = [list(job.gpus)]
            if job.expansion is not None:
                nodes = [node for node in job.expansion.nodes if node.is_message]
                groups = [[sorted(job.gpus)[rank] for rank in node.ranks] for node in nodes]
            for gpus in groups:
                if len({self.server[gpu] for gpu in gpus}) > 1 and link in self.links_of(gpus):
                    found.add(job.index)
        return found

    def messages_on(self, link: Link) -> list[Message]:
        """The messages that count on a link: none on a network without contention."""
        if not self.contends:
            return []
        return [one.message for one in self.sending() if one.message and link in one.links]

    def sending(self) -> list[Transfer]:
        """Everything that has a message on the network."""
        return [one for job in self.held() for one in job.transfers if one.message]

    def most(self, transfer: Transfer) -> int:
        """The largest number of messages in its way on any of its links."""
        return max(self.in_the_way(link) for link in transfer.links)

    def in_the_way(self, link: Link) -> int:
        """How many messages on a link one more would meet: the link carries so many."""
        return max(0, len(self.messages_on(link)) - self.carries(link) + 1)

    def cost_of_byte(self, transfer: Transfer) -> float:
        """What a byte of a message costs: that on the dearest of its links."""
        if not self.contends:
            rails = [part for link, part in transfer.links.items() if link[0] == "rail"]
            return max(rails) * self.cost(1)
        return max(
            part * self.w(link) * self.cost(len(self.messages_on(link)))
            for link, part in transfer.links.items()
        )

    def fair_costs(self) -> dict[Transfer, float]:
        """What a byte of each running message costs if links are shared fairly."""
        sending = self.sending()
        links: list[Link] = [("rail", server, 0) for server in range(len(self.server_type))]
        for tier, (switch_of, _) in enumerate(self.tiers):
            links += [("uplink", tier, switch) for switch in sorted(set(switch_of))]
        users = {link: [one for one in sending if link in one.links] for link in links}
        full = {link: self.w(link) * self.cost(len(on_it)) for link, on_it in users.items()}
        left = {link: float(len(on_it)) for link, on_it in users.items()}
        costs: dict[Transfer, float] = {}
        while len(costs) < len(sending):
            offers = []
            for link in links:
                still = [one for one in users[link] if one not in costs]
                if still:
                    offers.append((full[link] * (len(still) / left[link]), still))
            # Of equal offers, max takes that of the first link.
            cost, served = max(offers, key=lambda offer: offer[0])
            for transfer in served:
                costs[transfer] = cost
                for link in transfer.links:
                    left[link] -= full[link] / cost
        return costs

    def remaining_at(self, message: Message, t: int) -> float:
        """Bytes left at t; a question, which changes nothing."""
        elapsed = t - max(message.last_change_ns, message.end_of_latency_ns)
        if elapsed <= 0:
            return message.remaining_bytes
        return max(0.0, message.remaining_bytes - elapsed / message.cost)

    def rate(self, message: Message, cost: float, t: int) -> None:
        """From t on a byte of the message costs this much."""
        message.remaining_bytes = self.remaining_at(message, t)
        message.last_change_ns = t
        message.cost = cost
        sending_ns = math.ceil(message.remaining_bytes * cost)
        message.end_ns = max(t + 1, max(t, message.end_of_latency_ns) + sending_ns)

    # Placement policies.

    def candidates(self, job: Job) -> list[int]:
        """The GPUs with room for the job, in the order in which the policy takes them."""
        all_gpus, all_servers = range(len(self.server)), range(len(self.server_type))
        server = self.server
        free = {gpu: self.memory_of(gpu) for gpu in all_gpus}
        full = dict.fromkeys(all_gpus, False)
        load = dict.fromkeys(all_gpus, 0)  # L_g
        server_load = dict.fromkeys(all_servers, 0)  # L_S
        for holder in self.held():
            for gpu in holder.gpus:
                free[gpu] -= holder.spec.memory_bytes
                full[gpu] |= self.exclusive or holder.spec.exclusive or job.spec.exclusive
                load[gpu] += self.remaining_service(holder)
                server_load[server[gpu]] += self.remaining_service(holder)
        fitting = [gpu for gpu in all_gpus if free[gpu] >= job.spec.memory_bytes and not full[gpu]]
        fitting = [gpu for gpu in fitting if not self.is_reserved(gpu, job)]

        policy, _, kappa = self.placement.partition(":")
        if policy == "ff":
            return fitting
        if policy == "rand":
            return sorted(fitting, key=lambda gpu: (shuffle_key(self.seed, job.index, gpu), gpu))
        if policy == "ls" or (policy == "lwf" and job.spec.gpus <= int(kappa)):
            return sorted(fitting, key=lambda gpu: (load[gpu], gpu))
        if policy == "lwf":
            return sorted(
                fitting, key=lambda gpu: (server_load[server[gpu]], server[gpu], load[gpu], gpu)
            )
        if policy == "spread":
            place = {}
            for number in all_servers:
                own = [gpu for gpu in fitting if server[gpu] == number]
                for turn, gpu in enumerate(sorted(own, key=lambda gpu: (load[gpu], gpu))):
                    place[gpu] = (turn, server_load[number], number)
            return sorted(fitting, key=lambda gpu: place[gpu])
        in_server = [
            sorted((load[gpu], gpu) for gpu in fitting if server[gpu] == number)
            for number in all_servers
        ]
        if policy == "least-delay":
            return self.least_delay(job, fitting)
        if policy == "consolidate":
            return self.fewest_servers(in_server, job.spec.gpus)
        if policy == "tiresias":
            if self.alone_ns(job) > job.compute_ns:
                return self.fewest_servers(in_server, job.spec.gpus)
            return [gpu for _, gpu in sorted(pair for pairs in in_server for pair in pairs)]
        if policy == "apart":
            if all(len(pairs) < job.spec.gpus for pairs in in_server):
                spread = [holder.servers for holder in self.held() if len(holder.servers) > 1]
                for number in frozenset().union(*spread):
                    in_server[number] = []
            return self.fewest_servers(in_server, job.spec.gpus)
        raise ValueError(f"unknown placement policy {self.placement!r}")

    def is_reserved(self, gpu: int, job: Job) -> bool:
        """Whether a GPU is kept for another queued job: of higher priority, and above 0."""
        return any(
            other.spec.priority > max(0, job.spec.priority)
            and other.spec.memory_bytes <= self.memory_of(gpu)
            for other in self.queue
            if not other.gpus
        )

    def memory_of(self, gpu: int) -> int:
        """Bytes that a GPU has."""
        return self.memory_bytes[self.server_type[self.server[gpu]]]

    @staticmethod
    def fewest_servers(own: list[list[tuple[int, int]]], n: int) -> list[int]:
        """GPUs of the servers with most, as few as can be, the last of them the tightest.

        `own` has each server's (load, GPU) pairs in order. Fewer than n: all there are.
        """
        ranked = sorted(range(len(own)), key=lambda number: (-len(own[number]), number))
        taken = 0
        while taken < len(ranked) and sum(len(own[s]) for s in ranked[: taken + 1]) < n:
            taken += 1
        chosen = ranked[:taken]
        left = n - sum(len(own[number]) for number in chosen)
        enough = [number for number in ranked[taken:] if len(own[number]) >= left]
        chosen += sorted(enough, key=lambda number: (len(own[number]), number))[:1]
        return [gpu for number in chosen for _, gpu in own[number]]

    def least_delay(self, job: Job, fitting: list[int]) -> list[int]:
        """The GPUs where the job is delayed, and delays others, least; none if it should wait."""
        n, server = job.spec.gpus, self.server
        compute_ns = job.iterations_left * job.compute_ns
        size = self.block_size(job)
        time_ns = compute_ns
        if size > 1 and job.expansion is None:
            time_ns += job.iterations_left * self.alone_ns(job)
        elif size > 1:
            # As many GPUs on each server, and where that does not work out one more on the first.
            even = sorted(rank % size for rank in range(n))
            sent = self.sent_ns(job, even)
            time_ns = max([compute_ns, *(job.iterations_left * each for each in sent.values())])
        mine = (time_ns, job.index)

        # A machine is ("gpu", number) or ("network", server).
        work: dict[tuple[int, int], dict[tuple[str, int], int]] = {}
        for other in self.held():
            busy = other.iterations_left * other.compute_ns
            time = other.iterations_left * self.s_ns(other)
            uses = {("gpu", gpu): busy for gpu in other.gpus}
            if other.expansion is not None:
                sent = self.sent_ns(other, [server[gpu] for gpu in other.gpus])
                uses |= {("network", on): other.iterations_left * sent[on] for on in sent}
            elif len(other.servers) > 1:
                uses |= {("network", on): time - busy for on in other.servers}
            work[time, other.index] = uses

        def ahead(key: tuple[int, int], machine: tuple[str, int]) -> int:
            return sum(uses.get(machine, 0) for other, uses in work.items() if other < key)

        def end(key: tuple[int, int], extra: dict[tuple[str, int], int]) -> int:
            """When a job ends if the new one adds `extra` ahead of it."""
            uses = work[key]
            before = {m: ahead(key, m) + extra.get(m, 0) for m in uses}
            busy = [max(key[0] + before[m] // 2, before[m] + uses[m]) for m in uses]
            return max([key[0], *busy])

        def delay(extra: dict[tuple[str, int], int]) -> int:
            return max(ahead(mine, machine) for machine in extra)

        def cost(extra: dict[tuple[str, int], int]) -> int:
            later = [key for key in work if key > mine and work[key].keys() & extra.keys()]
            return delay(extra) + sum(end(key, extra) - end(key, {}) for key in later)

        alone = {gpu: cost({("gpu", gpu): compute_ns}) for gpu in fitting}
        cheap = sorted(fitting, key=lambda gpu: (alone[gpu], gpu))
        if n == 1:
            return cheap
        choices = []
        talks = job.expansion is not None and size > 1
        units = [unit for unit in range(1, n) if n % unit == 0] if talks else [1]
        for unit, start in itertools.product(units, self.blocks(size)):
            offer = []  # a server's GPUs, cheapest first, in units that cost as much as their last
            for on in range(start, start + size):
                own = [gpu for gpu in cheap if server[gpu] == on]
                for at in range(0, len(own) - unit + 1, unit):
                    offer += [(alone[own[at + unit - 1]], gpu) for gpu in own[at : at + unit]]
            inside = [gpu for _, gpu in sorted(offer)[:n]]
            if len(inside) < n:
                continue
            extra = {("gpu", gpu): compute_ns for gpu in inside}
            sending_ns = 0
            if size > 1:
                cut = [server[gpu] for gpu in sorted(inside)]
                sent = dict.fromkeys(cut, 0)
                if job.expansion is None:
                    sent = dict.fromkeys(cut, self.alone_ns(job))
                else:
                    sent |= self.sent_ns(job, cut)
                    sending_ns = job.iterations_left * max(sent.values())
                extra |= {("network", each): job.iterations_left * sent[each] for each in sent}
                if delay(extra) > mine[0]:
                    continue
            choices.append((cost(extra) + sending_ns, unit, start, inside))
        if choices or size == 1:
            return min(choices)[3] if choices else []
        # Empty servers, wherever they are, if as many as a block has are enough.
        taken = {server[gpu] for other in self.held() for gpu in other.gpus}
        empty = sorted({server[gpu] for gpu in fitting} - taken)[:size]
        inside = [gpu for gpu in sorted(fitting) if server[gpu] in empty]
        return inside[:n] if len(inside) >= n else []

    def sent_ns(self, job: Job, server_of: list[int]) -> dict[int, int]:
        """The time of a graph's messages, each alone, on each server, from the server of each rank.

        Servers without any are left out.
        """
        assert job.expansion is not None
        total: dict[int, int] = {}
        for node in job.expansion.nodes:
            on = [server_of[rank] for rank in node.ranks]
            if not node.is_message or len(set(on)) == 1:
                continue
            latency = self.a(len(set(on)))
            if node.entry.kind != "all-reduce":
                latency = round(latency / 2)
            size = self.size(node, max(on.count(server) for server in on))
            alone = latency + math.floor(self.v(len(set(on))) * self.b * size)
            for server in set(on):
                total[server] = total.get(server, 0) + alone
        return total

    def blocks(self, size: int) -> list[int]:
        """The first servers of the aligned blocks of `size` servers, and of the last block."""
        last = len(self.server_type) - size
        return sorted({start for start in range(last + 1) if start % size == 0} | {last})

    def block_size(self, job: Job) -> int:
        """The least number of servers of which some block, empty, could hold the job."""
        able = [
            self.server[gpu]
            for gpu in range(len(self.server))
            if self.memory_of(gpu) >= job.spec.memory_bytes
        ]
        return next(
            size
            for size in range(1, len(self.server_type) + 1)
            for start in self.blocks(size)
            if sum(start <= server < start + size for server in able) >= job.spec.gpus
        )

    # Admission policies.

    def bucket(self, transfer: Transfer) -> int:
        """The bytes of its next message."""
        shared = self.contends and any(
            len(self.jobs_on(link)) > self.carries(link) for link in transfer.links
        )
        if self.bucket_bytes is None or (self.buckets_if_shared and not shared):
            return transfer.unsent_bytes
        return min(self.bucket_bytes, transfer.unsent_bytes)

    def admits(self, transfer: Transfer, t: int) -> bool | int:
        """Whether the next message, which is ready, may start at t, or not before when."""
        most = self.most(transfer)
        policy, _, limit = self.admission.rpartition(".py:")[2].partition(":")
        if policy == "always":
            return True
        if policy in ("lattice", "fickle"):
            step = int(limit)
            if most == 0:
                return -(-t // step) * step
            odd = transfer.job.index % 2
            return False if policy == "lattice" or odd else (t // step + 1) * step
        if policy == "srsf":
            return most < int(limit)
        if policy == "ada-dual":
            if most != 1:
                return most == 0
            theta = self.b / (2 * (self.b + self.eta))
            return all(
                transfer.next_bytes < theta * self.remaining_at(old, t)
                for link in transfer.links
                if self.in_the_way(link) > 0
                for old in self.messages_on(link)
            )
        if policy == "k-way":
            return all(
                self.joins_all(transfer, link, t)
                for link in transfer.links
                if self.in_the_way(link) > 0
            )
        if policy == "interleave":
            if not self.contends or most > 0:
                return most == 0
            return self.slot(transfer, t)
        raise ValueError(f"unknown admission policy {self.admission!r}")

    def slot(self, transfer: Transfer, t: int) -> int:
        """The first time from t on at which `interleave` lets a message start on idle links.

        A message that is longer than any gap between the slots of others starts at once.
        """

        def needs(size: int) -> int:
            buckets = 1 if self.bucket_bytes is None else -(-size // self.bucket_bytes)
            return max(1, buckets) * (self.a_ns + 1) + math.floor(self.b * size)

        def alone(of: Job) -> int:
            return needs(self.gradient_bytes(of))

        def meets(other: Job) -> bool:
            links = {link for own in self.sent_among(other) for link in self.links_of(own)}
            return other is job or bool(links & set(self.narrow(transfer)))

        job = transfer.job
        group = [other for other in self.held() if len(other.servers) > 1 and meets(other)]
        cycle = max(o.compute_ns + alone(o) for o in group)
        slots = sum(map(alone, group))
        if len(group) == 1 or slots > cycle:
            return t
        taken = []  # the slots of the others, in the cycles around t
        for zero in range(t // cycle * cycle - cycle, t + 3 * cycle, cycle):
            for other in group:
                if other is not job:
                    begin = zero + sum(alone(o) for o in group if o.index < other.index)
                    taken.append((begin, begin + alone(other)))
        length = needs(transfer.unsent_bytes)
        tries = [t, *sorted(end for _, end in taken if t < end < t + 2 * cycle)]
        free = [
            start
            for start in tries
            if all(start + length <= begin or end <= start for begin, end in taken)
        ]
        return free[0] if free else t

    def joins_all(self, transfer: Transfer, link: Link, t: int) -> bool:
        """Whether to start now beats, on one link, to start at the end of any message there."""
        new = float(transfer.next_bytes)
        newest_first = sorted(self.messages_on(link), key=lambda old: -old.number)
        left = [self.remaining_at(old, t) for old in newest_first]
        theta = self.b / (2 * (self.b + self.eta))
        for j, awaited in enumerate(left):
            balance = min(new, awaited)
            for other in left[:j] + left[j + 1 :]:
                shared_now, shared_later = min(new, other), min(new, max(0.0, other - awaited))
                balance += shared_now - shared_later - min(other, awaited) / 2
            if balance >= theta * awaited:
                return False
        return True

    def next_instant(self) -> int:
        """The earliest arrival or end of a task to come."""
        coming = [job.spec.arrival_ns for job in self.to_arrive]
        coming += [task.end_ns for task in self.running.values()]
        for transfer in (one for job in self.held() for one in job.transfers):
            if transfer.message is not None:
                coming.append(transfer.message.end_ns)
            elif transfer.not_before_ns >= 0:
                coming.append(transfer.not_before_ns)
        if not coming:
            raise RuntimeError("jobs are unfinished, nothing is running and nothing will arrive")
        return min(coming)


def own_times(job: OracleJob) -> tuple[int, ...]:
    """Forward and backward, or the times of its graph's tasks by entry."""
    if job.graph is None:
        return job.forward_ns, job.backward_ns
    return tuple(entry.duration_ns for entry in job.graph.tasks)


def make(
    jobs: Sequence[OracleJob],
    *,
    server_gpus: Sequence[int],
    memory_bytes: Sequence[int],
    exclusive: bool = False,
    server_type: Sequence[int] | None = None,
    times_ns: Sequence[Sequence[tuple[int, ...]]] | None = None,
    rails: Sequence[int] | None = None,
    tiers: Sequence[tuple[Sequence[int], float]] = (),
    a_ns: int,
    b: float,
    eta: float,
    contends: bool = True,
    sharing: str = "busiest",
    ring: int | None = None,
    placement: str = "lwf:1",
    priority: str = "srsf",
    admission: str = "ada-dual",
    seed: int = 0,
    bucket_bytes: int | None = None,
    buckets_if_shared: bool = False,
) -> Simulation:
    """Return a simulation of the jobs that has not begun.

    Servers have `server_gpus`, of type 0 unless told, and one rail; `memory_bytes` is that of a
    GPU of each type, `times_ns` each job's (forward, backward), or its graph's times by entry, on
    each type, its own unless told, and `tiers`, lowest first, the switch of each server and the
    oversubscription. Sharing is `busiest` or `max-min` (with one rail), and `ring` the number of
    servers among which a and b hold, None for any.
    Placement is `ff`, `rand`, `ls`, `lwf:K`, `spread`, `consolidate`, `tiresias` or `apart`;
    priority `srsf`, `srtf`, `fifo`, `smallest`, `las`, `2d-las:QUANTUM_S` or `gpu-intensity`;
    admission `srsf:N`, `ada-dual`, `k-way`, `interleave` or one of tests/data/lattice.py, each with
    `/needed-first` or without.
    """
    if times_ns is None:
        times_ns = [[own_times(job)] * len(memory_bytes) for job in jobs]
    states = [Job(i, spec, list(times_ns[i])) for i, spec in enumerate(jobs)]
    for job in states:
        if job.spec.graph is not None:
            job.expansion = Expansion(job.spec.graph)
    return Simulation(
        jobs=states,
        server=[server for server, count in enumerate(server_gpus) for _ in range(count)],
        server_type=list(server_type or [0] * len(server_gpus)),
        rails=list(rails or [1] * len(server_gpus)),
        tiers=list(tiers),
        memory_bytes=list(memory_bytes),
        exclusive=exclusive,
        a_ns=a_ns,
        b=b,
        eta=eta,
        contends=contends,
        fair=sharing == "max-min",
        ring=ring,
        placement=placement,
        priority=priority,
        admission=admission.removesuffix("/needed-first"),
        needed_first=admission.endswith("/needed-first"),
        seed=seed,
        bucket_bytes=bucket_bytes,
        buckets_if_shared=buckets_if_shared,
        to_arrive=list(states),
    )


def run(jobs: Sequence[OracleJob], **settings: Any) -> OracleOutcome:
    """Simulate the jobs until the last has finished; the settings are those of `make`.

    Raises RuntimeError when a job can never finish.
    """
    simulation = make(jobs, **settings)
    states = simulation.jobs
    while any(job.finish_ns < 0 for job in states):
        simulation.instant(simulation.next_instant())
    return OracleOutcome(
        start_ns=[job.start_ns for job in states],
        finish_ns=[job.finish_ns for job in states],
        gpus=[job.gpus for job in states],
        tasks=sorted(simulation.tasks),
    )
