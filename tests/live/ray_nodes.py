"""A Ray cluster on loopback until standard input ends; each node has one CPU.

    python ray_nodes.py PORT NAME...

The environment variables TMPDIR and RAY_TMPDIR set the folder of its files.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ray import cluster_utils


def main(port: int, names: list[str]) -> None:
    Path(os.environ["RAY_TMPDIR"], "ray").mkdir(exist_ok=True)
    cluster: Any = cluster_utils.Cluster()
    try:
        for number, name in enumerate(names):
            cluster.add_node(
                node_ip_address="127.0.0.1",
                node_name=name,
                num_cpus=1,
                include_dashboard=False,
                object_store_memory=80 * 2**20,
                **({} if number else {"gcs_server_port": port}),
            )
        print("up", flush=True)
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
