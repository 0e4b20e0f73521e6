"""Measures on a Ray cluster, with an actor on every node for each group.

The nodes need PyTorch and the same version of Headway. The actors request no CPU, since they wait
for the network nearly all of the time; with nccl each requests a GPU.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headway.calibrate.network.plan import Plan
from headway.calibrate.network.rank import Measurement, measure
from headway.domain.errors import HeadwayError, MachineError
from headway.ray_session import connected, interface_of, signals_held

_WAIT_S = 0.5


def measure_on_ray(address: str, plan: Plan, progress: Callable[[float], None]) -> Measurement:
    """Measure the network between all nodes of the cluster at an address."""
    with connected(address, 1) as ray, signals_held() as act:
        nodes = sorted(
            (node["NodeManagerAddress"], node["NodeID"]) for node in ray.nodes() if node["Alive"]
        )
        if len(nodes) < 2:
            raise MachineError(
                f"the Ray cluster at {address} has only one node; at least two are needed."
            )
        actors = _actors(ray, nodes, plan)
        try:
            place = _answer(ray, actors[0].rendezvous.remote(), plan.timeout_s, act)
            tasks = [
                actor.measure.remote(plan, _environment(rank, len(nodes), plan, place))
                for rank, actor in enumerate(actors)
            ]
            left = list(tasks)
            while left:
                done, left = ray.wait(left, timeout=_WAIT_S)
                act()
                for task in done:
                    ray.get(task)
                share = actors[0].share.remote()
                if ray.wait([share], timeout=_WAIT_S)[0]:
                    progress(ray.get(share))
            measurement: Measurement = ray.get(tasks[0])
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, HeadwayError):
                raise cause from None
            reason = " ".join(str(error).split())
            raise MachineError(f"a process on the Ray cluster failed: {reason}") from None
        finally:
            for actor in actors:
                with suppress(Exception):
                    ray.kill(actor)
    measurement.about["hosts"] = [host for host, _ in nodes]
    return measurement


def _answer(ray: Any, question: Any, timeout_s: float, act: Callable[[], None]) -> Any:
    """Return the result of a call, and handle signals while waiting for it."""
    deadline = time.monotonic() + timeout_s
    while not ray.wait([question], timeout=_WAIT_S)[0]:
        act()
        if time.monotonic() > deadline:
            raise MachineError(f"the Ray cluster started no process within {timeout_s:g} s.")
    return ray.get(question)


def _actors(ray: Any, nodes: list[tuple[str, str]], plan: Plan) -> list[Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    kind = ray.remote(
        num_cpus=0, num_gpus=int(plan.backend == "nccl"), max_restarts=0, max_concurrency=2
    )(_Actor)
    return [
        kind.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
        for _, node in nodes
        for _ in range(plan.concurrent)
    ]


def _environment(rank: int, nodes: int, plan: Plan, place: tuple[str, int]) -> dict[str, str]:
    return {
        "MASTER_ADDR": place[0],
        "MASTER_PORT": str(place[1]),
        "RANK": str(rank),
        "WORLD_SIZE": str(nodes * plan.concurrent),
        "LOCAL_RANK": str(rank % plan.concurrent),
        "LOCAL_WORLD_SIZE": str(plan.concurrent),
    }


class _Actor:
    """One process of the measurement."""

    def __init__(self) -> None:
        self._share = 0.0

    def rendezvous(self) -> tuple[str, int]:
        """Return this node's address and a free port."""
        address = _node_address()
        with socket.socket() as free:
            free.bind((address, 0))
            return address, int(free.getsockname()[1])

    def measure(self, plan: Plan, environment: dict[str, str]) -> Measurement | None:
        """Take part in the measurement."""
        os.environ.update(environment)
        interface = interface_of(_node_address())
        if interface is not None:
            # The interface that Ray uses, whatever the host name resolves to.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
        return measure(plan, self._tell, gpu=0)

    def share(self) -> float:
        """Return the share that is done."""
        return self._share

    def _tell(self, share: float) -> None:
        self._share = share


def _node_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
