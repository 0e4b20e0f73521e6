"""A slow, plain simulator of docs/model.md, to compare Headway's engine with.

It is a second, independent reading of the specification and shares no code with the engine, so
a mistake in one shows as a difference in some start, finish or task, to the nanosecond. It is
slow on purpose: at each instant it looks at every job, GPU and message, and recomputes loads,
orders and contention from scratch. No heap, no cache, no merged tasks: what is easy to check
against the text cannot hide the mistakes that speed-ups make.

Read it beside docs/model.md: `Simulation.instant` is the section "One instant", and each of its
five steps is one method. Times are integer nanoseconds, sizes bytes, costs nanoseconds a byte.
Inputs are taken as valid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


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


@dataclass(frozen=True, order=True)
class OracleTask:
    """A task that ran: `kind` is "forward", "backward" or "message"; a message has gpu -1."""

    start_ns: int
    end_ns: int
    kind: str
    job: int
    iteration: int
    gpu: int


@dataclass(frozen=True)
class OracleOutcome:
    """Each job's placement time, finish and GPUs (ascending), and every task, sorted."""

    start_ns: list[int]
    finish_ns: list[int]
    gpus: list[tuple[int, ...]]
    tasks: list[OracleTask]


@dataclass(eq=False)
class Message:
    """An admitted all-reduce. cost = 0: admitted at this instant and not yet rated."""

    admitted_ns: int
    end_of_latency_ns: int
    remaining_bytes: float
    last_change_ns: int
    number: int  # how many were admitted before it
    cost: float = 0.0  # ns for a byte
    end_ns: int = -1


@dataclass(eq=False)
class Job:
    """A job's state. It is held by its GPUs from its placement to its finish."""

    index: int
    spec: OracleJob
    times_ns: list[tuple[int, int]]  # forward and backward on each type of GPU
    gpus: tuple[int, ...] = ()
    types: frozenset[int] = frozenset()  # of its GPUs
    servers: frozenset[int] = frozenset()
    racks: frozenset[int] = frozenset()
    tried: bool = False  # whether a placement has been asked about it
    start_ns: int = -1
    finish_ns: int = -1
    iterations_done: int = 0
    # For each of its GPUs, this iteration's compute tasks that have not ended, in order.
    compute: dict[int, list[str]] = field(default_factory=dict)
    message: Message | None = None
    unsent_bytes: int = 0  # of this iteration's gradients, without the message on the network
    not_before_ns: int = -1  # the time that an admission named, until it says something else

    @property
    def iterations_left(self) -> int:
        return self.spec.iterations - self.iterations_done

    @property
    def compute_ns(self) -> int:
        """Forward and backward: before it is placed on the fastest type, then on its slowest."""
        if not self.gpus:
            return min(sum(times) for times in self.times_ns)
        return max(sum(self.times_ns[kind]) for kind in self.types)

    @property
    def links(self) -> list[tuple[str, int]]:
        """Where its messages are: its servers, and the uplinks of its racks if they are several."""
        links = [("server", server) for server in sorted(self.servers)]
        if len(self.racks) > 1:
            links += [("rack", rack) for rack in sorted(self.racks)]
        return links

    @property
    def computed(self) -> bool:
        """Whether all the backwards of this iteration are done."""
        return not any(self.compute.values())

    def make_forwards_ready(self) -> None:
        """An iteration begins."""
        self.compute = {gpu: ["forward", "backward"] for gpu in self.gpus}
        self.unsent_bytes = self.spec.gradient_bytes


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
    server_rack: list[int]
    memory_bytes: list[int]  # of a GPU of each type
    uplinks: list[float]  # of each rack: a byte's cost over that on a server's link
    a_ns: int
    b: float
    eta: float
    contends: bool
    fair: bool  # whether links are shared by max-min fairness
    ring: int | None  # the servers among which a and b were measured
    placement: str
    priority: str
    admission: str
    seed: int
    bucket_bytes: int | None

    to_arrive: list[Job] = field(default_factory=list)
    queue: list[Job] = field(default_factory=list)
    running: dict[int, OracleTask] = field(default_factory=dict)  # GPU -> its compute task
    tasks: list[OracleTask] = field(default_factory=list)
    admitted: int = 0  # messages so far

    # Remaining service and order.

    def s_ns(self, job: Job) -> int:
        """s_J: one iteration's forward and backward, and its all-reduce across servers."""
        s = job.compute_ns
        if len(job.servers) > 1:
            s += self.alone_ns(job)
        return s

    def alone_ns(self, job: Job) -> int:
        """What its all-reduce takes whole and alone."""
        v = self.v(job) if len(job.servers) > 1 else 1.0
        a = self.a(job) if len(job.servers) > 1 else self.a_ns
        return a + math.floor(v * self.b * job.spec.gradient_bytes)

    def a(self, job: Job) -> int:
        """Latency among the servers of a placed job."""
        if self.ring is None:
            return self.a_ns
        return round(float(self.a_ns) * float(len(job.servers) - 1) / float(self.ring - 1))

    def v(self, job: Job) -> float:
        """How much dearer a byte is among the servers of a placed job than where b was measured."""
        if self.ring is None:
            return 1.0
        n = len(job.servers)
        return ((n - 1) / n) / ((self.ring - 1) / self.ring)

    def remaining_service(self, job: Job) -> int:
        """L_J."""
        return job.iterations_left * self.s_ns(job) * job.spec.gpus

    def attained_service(self, job: Job) -> int:
        """GPU time of the iterations that have ended."""
        return job.iterations_done * self.s_ns(job) * job.spec.gpus

    def order(self, job: Job) -> tuple[int, ...]:
        """The sort key that stands wherever the specification says "SRSF order"."""
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
                    job.compute[gpu].remove(task.kind)
            # On a single server the all-reduce takes no time.
            all_reduced = job.computed and len(job.servers) == 1
            sent = job.message
            if sent is not None and sent.end_ns == t:
                done = job.iterations_done
                self.tasks.append(OracleTask(sent.admitted_ns, t, "message", job.index, done, -1))
                job.message = None
                # When one bucket ends and bytes are left, the next is ready at this instant.
                all_reduced = job.unsent_bytes == 0
            if all_reduced:
                job.iterations_done += 1
                if job.iterations_left == 0:
                    job.finish_ns = t
                else:
                    job.make_forwards_ready()

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
            job.racks = frozenset(self.server_rack[server] for server in job.servers)
            job.start_ns = t
            job.make_forwards_ready()
        self.queue = still_queued

    def admit(self, t: int) -> None:
        """Step 4: admit the all-reduces that are ready, then rate messages whose cost changed."""
        ready = [job for job in self.held() if job.computed and job.message is None]
        for job in sorted(ready, key=self.order):
            answer = self.admits(job, t)
            job.not_before_ns = -1
            if answer is True or (answer is not False and answer <= t):
                size = self.bucket(job)
                job.unsent_bytes -= size
                job.message = Message(t, t + self.a(job), float(size), t, self.admitted)
                self.admitted += 1
            elif answer is not False:
                job.not_before_ns = answer
        fair = self.fair_costs() if self.fair and self.contends else None
        for job in self.held():
            if job.message is not None:
                by_link = self.cost_of_byte(job) if fair is None else fair[job.index]
                cost = self.v(job) * by_link
                if cost != job.message.cost:
                    self.rate(job.message, cost, t)

    def dispatch(self, t: int) -> None:
        """Step 5: every idle GPU starts the ready compute task of its first job in order."""
        held = sorted(self.held(), key=self.order)
        for gpu, server in enumerate(self.server):
            if gpu in self.running:
                continue
            first = next((job for job in held if job.compute.get(gpu)), None)
            if first is not None:
                kind = first.compute[gpu][0]
                forward_ns, backward_ns = first.times_ns[self.server_type[server]]
                end = t + (forward_ns if kind == "forward" else backward_ns)
                done = first.iterations_done
                self.running[gpu] = OracleTask(t, end, kind, first.index, done, gpu)

    # A message on the network.

    def cost(self, k: int) -> float:
        """Nanoseconds a byte takes under k-way contention."""
        return k * self.b + (k - 1) * self.eta

    def messages_on(self, link: tuple[str, int]) -> list[Message]:
        """The messages that count on a link: none on a network without contention."""
        if not self.contends:
            return []
        return [job.message for job in self.held() if job.message and link in job.links]

    def most(self, job: Job) -> int:
        """The largest number of messages on any of the job's links."""
        return max(len(self.messages_on(link)) for link in job.links)

    def cost_of_byte(self, job: Job) -> float:
        """What a byte of the job's message costs: that on the dearest of its links."""
        if not self.contends:
            return self.cost(1)
        costs = []
        for kind, number in job.links:
            cost = self.cost(len(self.messages_on((kind, number))))
            costs.append(cost if kind == "server" else self.uplinks[number] * cost)
        return max(costs)

    def fair_costs(self) -> dict[int, float]:
        """What a byte of each running message costs if links are shared fairly, by job."""
        sending = [job for job in self.held() if job.message]
        links = [("server", server) for server in range(len(self.server_type))]
        links += [("rack", rack) for rack in range(len(self.uplinks))]
        users = {link: [job.index for job in sending if link in job.links] for link in links}
        full = {}
        for (kind, number), on_it in users.items():
            cost = self.cost(len(on_it))
            full[kind, number] = cost if kind == "server" else self.uplinks[number] * cost
        left = {link: float(len(on_it)) for link, on_it in users.items()}
        costs: dict[int, float] = {}
        while len(costs) < len(sending):
            offers = []
            for link in links:
                still = [index for index in users[link] if index not in costs]
                if still:
                    offers.append((full[link] * (len(still) / left[link]), still))
            # Of equal offers, max takes that of the first link.
            cost, served = max(offers, key=lambda offer: offer[0])
            for index in served:
                costs[index] = cost
                for link in self.jobs[index].links:
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
        """The GPUs with enough free memory, in the order in which the policy takes them."""
        all_gpus, all_servers = range(len(self.server)), range(len(self.server_type))
        server = self.server
        free = {gpu: self.memory_of(gpu) for gpu in all_gpus}
        load = dict.fromkeys(all_gpus, 0)  # L_g
        server_load = dict.fromkeys(all_servers, 0)  # L_S
        for holder in self.held():
            for gpu in holder.gpus:
                free[gpu] -= holder.spec.memory_bytes
                load[gpu] += self.remaining_service(holder)
                server_load[server[gpu]] += self.remaining_service(holder)
        fitting = [gpu for gpu in all_gpus if free[gpu] >= job.spec.memory_bytes]

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
            send = self.a_ns + math.floor(self.b * job.spec.gradient_bytes)
            if send > job.compute_ns:
                return self.fewest_servers(in_server, job.spec.gpus)
            return [gpu for _, gpu in sorted(pair for pairs in in_server for pair in pairs)]
        if policy == "apart":
            if all(len(pairs) < job.spec.gpus for pairs in in_server):
                spread = [holder.servers for holder in self.held() if len(holder.servers) > 1]
                for number in frozenset().union(*spread):
                    in_server[number] = []
            return self.fewest_servers(in_server, job.spec.gpus)
        raise ValueError(f"unknown placement policy {self.placement!r}")

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
        sending_ns = 0
        size = self.block_size(job)
        if size > 1:
            message_ns = self.a_ns + math.floor(self.b * job.spec.gradient_bytes)
            sending_ns = job.iterations_left * message_ns
        mine = (compute_ns + sending_ns, job.index)

        # A machine is ("gpu", number) or ("network", server).
        work: dict[tuple[int, int], dict[tuple[str, int], int]] = {}
        for other in self.held():
            busy = other.iterations_left * other.compute_ns
            time = other.iterations_left * self.s_ns(other)
            uses = {("gpu", gpu): busy for gpu in other.gpus}
            if len(other.servers) > 1:
                uses |= {("network", server): time - busy for server in other.servers}
            work[time, other.index] = uses

        def ahead(key: tuple[int, int], machine: tuple[str, int]) -> int:
            return sum(uses.get(machine, 0) for other, uses in work.items() if other < key)

        def end(key: tuple[int, int], extra: dict[tuple[str, int], int]) -> int:
            """When a job ends if the new one adds `extra` ahead of it."""
            uses = work[key]
            return max([key[0], *(ahead(key, m) + uses[m] + extra.get(m, 0) for m in uses)])

        def delay(extra: dict[tuple[str, int], int]) -> int:
            return max(ahead(mine, machine) for machine in extra)

        def cost(extra: dict[tuple[str, int], int]) -> int:
            later = [key for key in work if key > mine and work[key].keys() & extra.keys()]
            return delay(extra) + sum(end(key, extra) - end(key, {}) for key in later)

        cheap = sorted(fitting, key=lambda gpu: (cost({("gpu", gpu): compute_ns}), gpu))
        if n == 1:
            return cheap
        choices = []
        for start in self.blocks(size):
            inside = [gpu for gpu in cheap if start <= server[gpu] < start + size][:n]
            if len(inside) < n:
                continue
            extra = {("gpu", gpu): compute_ns for gpu in inside}
            if size > 1:
                extra |= {("network", server[gpu]): sending_ns for gpu in inside}
                if delay(extra) > mine[0]:
                    continue
            choices.append((cost(extra), start, inside))
        return min(choices)[2] if choices else []

    def blocks(self, size: int) -> list[int]:
        """The first servers of the aligned blocks of so many, and of the last so many."""
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

    def bucket(self, job: Job) -> int:
        """The bytes of the job's next message."""
        if self.bucket_bytes is None:
            return job.unsent_bytes
        return min(self.bucket_bytes, job.unsent_bytes)

    def admits(self, job: Job, t: int) -> bool | int:
        """Whether the job's next message, which is ready, may start at t, or not before when."""
        most = self.most(job)
        policy, _, limit = self.admission.rpartition(".py:")[2].partition(":")
        if policy in ("lattice", "fickle"):
            step = int(limit)
            if most == 0:
                return -(-t // step) * step
            return False if policy == "lattice" or job.index % 2 else (t // step + 1) * step
        if policy == "srsf":
            return most < int(limit)
        if policy == "ada-dual":
            if most != 1:
                return most == 0
            theta = self.b / (2 * (self.b + self.eta))
            return all(
                self.bucket(job) < theta * self.remaining_at(old, t)
                for link in job.links
                for old in self.messages_on(link)
            )
        if policy == "k-way":
            return all(self.joins_all(job, link, t) for link in job.links)
        if policy == "interleave":
            if not self.contends or most > 0:
                return most == 0
            return self.slot(job, t)
        raise ValueError(f"unknown admission policy {self.admission!r}")

    def slot(self, job: Job, t: int) -> int:
        """The first time from t on at which `interleave` lets the job start on idle links."""

        def needs(size: int) -> int:
            buckets = 1 if self.bucket_bytes is None else -(-size // self.bucket_bytes)
            return max(1, buckets) * (self.a_ns + 1) + math.floor(self.b * size)

        def alone(of: Job) -> int:
            return needs(of.spec.gradient_bytes)

        group = [other for other in self.held() if set(other.links) & set(job.links)]
        group = [other for other in group if len(other.servers) > 1]
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
        tries = [t, *sorted(end for _, end in taken if end > t)]
        return next(
            start
            for start in tries
            if all(start + needs(job.unsent_bytes) <= begin or end <= start for begin, end in taken)
        )

    def joins_all(self, job: Job, link: tuple[str, int], t: int) -> bool:
        """Whether to start now beats, on one link, to start at the end of any message there."""
        new = float(self.bucket(job))
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
        coming += [job.message.end_ns for job in self.jobs if job.message is not None]
        coming += [job.not_before_ns for job in self.held() if job.not_before_ns >= 0]
        if not coming:
            raise RuntimeError("jobs are unfinished, nothing is running and nothing will arrive")
        return min(coming)


def run(
    jobs: Sequence[OracleJob],
    *,
    server_gpus: Sequence[int],
    memory_bytes: Sequence[int],
    server_type: Sequence[int] | None = None,
    times_ns: Sequence[Sequence[tuple[int, int]]] | None = None,
    server_rack: Sequence[int] | None = None,
    uplinks: Sequence[float] = (),
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
) -> OracleOutcome:
    """Simulate the jobs until the last has finished.

    Servers have so many GPUs each, of type 0 and in rack 0 unless told; `memory_bytes` is that of a
    GPU of each type, `times_ns` each job's (forward, backward) on each type, its own unless told,
    and `uplinks` each rack's factor on the cost of a byte. Sharing is `busiest` or `max-min`, and
    `ring` the number of servers among which a and b hold, None for any.
    Placement is `ff`, `rand`, `ls`, `lwf:K`, `spread`, `consolidate`, `tiresias` or `apart`;
    priority `srsf`, `srtf`, `fifo`, `smallest`, `las`, `2d-las:QUANTUM_S` or `gpu-intensity`;
    admission `srsf:N`, `ada-dual`, `k-way`, `interleave` or one of tests/data/lattice.py.
    Raises RuntimeError when a job can never finish.
    """
    if times_ns is None:
        times_ns = [[(job.forward_ns, job.backward_ns)] * len(memory_bytes) for job in jobs]
    states = [Job(i, spec, list(times_ns[i])) for i, spec in enumerate(jobs)]
    simulation = Simulation(
        jobs=states,
        server=[server for server, count in enumerate(server_gpus) for _ in range(count)],
        server_type=list(server_type or [0] * len(server_gpus)),
        server_rack=list(server_rack or [0] * len(server_gpus)),
        memory_bytes=list(memory_bytes),
        uplinks=list(uplinks),
        a_ns=a_ns,
        b=b,
        eta=eta,
        contends=contends,
        fair=sharing == "max-min",
        ring=ring,
        placement=placement,
        priority=priority,
        admission=admission,
        seed=seed,
        bucket_bytes=bucket_bytes,
        to_arrive=list(states),
    )
    while any(job.finish_ns < 0 for job in states):
        simulation.instant(simulation.next_instant())
    return OracleOutcome(
        start_ns=[job.start_ns for job in states],
        finish_ns=[job.finish_ns for job in states],
        gpus=[job.gpus for job in states],
        tasks=sorted(simulation.tasks),
    )
