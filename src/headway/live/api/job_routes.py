"""Routes for jobs: list, describe, submit, cancel, priority, logs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse

from headway.live.api.client import ATTEMPT_HEADER
from headway.live.api.daemon_calls import DaemonCalls
from headway.live.api.errors import ApiError, error_responses
from headway.live.api.request_body import body_schema, read_body
from headway.live.api.responses import JsonResponse
from headway.live.api.streams import stream_log
from headway.live.api.submission import (
    PriorityChoice,
    Submission,
    check_priority,
    decoded,
    parse_submission,
)
from headway.live.api.views import JOBS_PER_SLICE, job_view
from headway.live.daemon.daemon import Daemon
from headway.live.executors import Attempt
from headway.live.executors.attempt_folders import KEPT_JOBS

MAX_LISTED = 1000


def add_job_routes(app: FastAPI, daemon: Daemon, calls: DaemonCalls) -> None:
    """Add the routes under /v1/jobs."""

    @app.get("/v1/jobs")
    async def _jobs(
        state: Annotated[str | None, Query(description="Only jobs in this state.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = MAX_LISTED,
    ) -> Response:
        """List jobs, unfinished ones first, then the most recent."""
        key = ("jobs", state, limit)
        return JsonResponse(await calls.shared(key, lambda: list_jobs(state, limit)))

    async def list_jobs(state: str | None, limit: int) -> dict[str, Any]:
        records = [
            one
            for one in reversed(daemon.registry.records())
            if state is None or one.state == state
        ]
        records.sort(key=lambda one: one.finished)
        listed = []
        for index, record in enumerate(records[:limit], start=1):
            listed.append(job_view(daemon, record.job_id))
            if index % JOBS_PER_SLICE == 0:
                await asyncio.sleep(0)
        return {"jobs": listed, "left_out": max(0, len(records) - limit)}

    @app.get("/v1/jobs/{job}")
    async def _job(job: str) -> Response:
        """Describe a job; one that is waiting says why."""
        return JsonResponse(await calls.call(lambda: job_view(daemon, job)))

    @app.post(
        "/v1/jobs",
        status_code=201,
        openapi_extra=body_schema(Submission),
        responses=error_responses(408, 413, 503, 507),
    )
    async def _submit(request: Request) -> Response:
        """Submit a job; it is on disk before the response is sent."""
        spec = parse_submission(await read_body(request))
        record = await calls.run(lambda: daemon.submit(spec))
        return JsonResponse(await calls.call(lambda: job_view(daemon, record.job_id)), 201)

    @app.post("/v1/jobs/{job}/cancel", responses=error_responses(409, 507))
    async def _cancel(job: str) -> Response:
        """Cancel a job: its processes get SIGTERM, and SIGKILL if they do not exit."""
        await calls.run(lambda: daemon.cancel(job))
        return JsonResponse(await calls.call(lambda: job_view(daemon, job)))

    @app.put(
        "/v1/jobs/{job}/priority",
        openapi_extra=body_schema(PriorityChoice),
        responses=error_responses(408, 409, 413, 507),
    )
    async def _priority(job: str, request: Request) -> Response:
        """Change a job's priority: where it waits it takes its new place at once."""
        priority = check_priority(decoded(await read_body(request), PriorityChoice).priority)
        await calls.run(lambda: daemon.set_priority(job, priority))
        return JsonResponse(await calls.call(lambda: job_view(daemon, job)))

    @app.get("/v1/jobs/{job}/logs")
    async def _logs(
        job: str,
        rank: Annotated[int, Query(ge=0, description="Which process of the job.")] = 0,
        attempt: Annotated[
            int | None, Query(ge=1, description="Only this attempt, not the latest.")
        ] = None,
        follow: Annotated[bool, Query(description="Continue until the job has ended.")] = False,
    ) -> Response:
        """Return the output of one rank: of an attempt, or from the latest on."""
        record = daemon.registry[job]
        gpus = record.spec.gpus
        if rank >= gpus:
            raise ApiError(400, f"rank: must be at most {gpus - 1}, not {rank}.")
        if attempt is not None and attempt > record.attempts:
            raise ApiError(400, f"attempt: job {job} has had {record.attempts}, not {attempt}.")
        number = attempt or record.attempts
        if number and (record.finished or number < record.attempts):
            folder = daemon.executor.log(Attempt(job, number), rank).parent
            if not await asyncio.to_thread(folder.exists):
                raise ApiError(
                    404,
                    f"the log of job {job} has been deleted: only the latest {KEPT_JOBS:,} "
                    "jobs keep theirs.",
                )
        stream = stream_log(daemon, job, rank, follow, attempt)
        return StreamingResponse(
            stream,
            media_type="application/octet-stream",
            headers={ATTEMPT_HEADER: str(number)},
        )
