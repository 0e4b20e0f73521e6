"""`headway whatif`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.console import print_lines, print_table, report_written, results, working
from headway.cli.live.client_options import (
    CertificateOption,
    FolderOption,
    ServerOption,
    TokenOption,
    connect,
)
from headway.domain.errors import InputError, did_you_mean
from headway.domain.limits import LONGEST_NS, MAX_BYTES, scaled
from headway.domain.models import MEBIBYTE
from headway.durations import duration_text
from headway.files import STANDARD, open_output
from headway.text_table import TextTable

if TYPE_CHECKING:
    from headway.domain.job import Job
    from headway.live.core.forecast import Forecast, JobForecast

_SPEC = "gpus=4,iterations=1000,model=resnet50"
_KEYS = (
    "gpus",
    "iterations",
    "model",
    "forward_ms",
    "backward_ms",
    "gradient_mb",
    "memory_mb",
    "priority",
)


def whatif_command(
    policy: Annotated[
        str | None,
        typer.Option(help="What if this policy took over now?", show_default=False),
    ] = None,
    add_nodes: Annotated[
        int | None,
        typer.Option(
            help="What if this number of nodes joined, like the last one?", show_default=False
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="What if this were the network: its name, or a .toml file?", show_default=False
        ),
    ] = None,
    submit: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help=f"What if this job were submitted: such as {_SPEC}? Keys: {', '.join(_KEYS)}.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option(help="Write the forecasts as JSON; - is stdout.", show_default=False),
    ] = None,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Predict when the scheduler's jobs start and end: as things are, and as they might be.

    The running cluster is simulated on from its present state. Nothing is changed there.
    """
    import msgspec

    from headway.configuration import network_from
    from headway.experiments.what_if import notes, present
    from headway.live.core.present_state import PresentState

    model = None if network is None else network_from(network)
    extra = None if submit is None else _job(submit)
    client = connect(folder, server, token_file, certificate)
    now = present(msgspec.convert(client.state(), PresentState))
    other, changed = now, False
    if policy is not None:
        other, changed = replace(other, policy=policy), True
    if model is not None:
        other, changed = replace(other, network=model), True
    if add_nodes is not None:
        other, changed = other.with_nodes(add_nodes), True
    if extra is not None:
        other, changed = other.with_job(extra), True
    with working("Simulating what follows"):
        forecasts = [now.forecast()]
        if changed:
            forecasts.append(other.forecast())
    if json is not None:
        with open_output(json) as stream:
            content = dict(zip(("now", "if"), forecasts, strict=False))
            stream.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
    console = results(to_stderr=json == STANDARD)
    if not any(forecast.jobs for forecast in forecasts):
        print_lines(console, "There are no jobs.")
    else:
        print_table(console, _table(forecasts))
        lines = [*_unable(forecasts), *_averages(forecasts), *notes(now)]
        print_lines(console, "", *lines)
    report_written(json)


def _job(text: str) -> Job:
    """Return the job that `--submit` describes."""
    from headway.configuration.profiles import profile_fields
    from headway.domain.job import Job
    from headway.experiments.what_if import HYPOTHETICAL

    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or key in given:
            raise _bad(f"must be like {_SPEC}, not '{text}'.")
        if key not in _KEYS:
            raise _bad(f"unknown key '{key}'.{did_you_mean(key, _KEYS)}")
        given[key] = value.strip()
    fields: dict[str, Any] = {}
    if "model" in given:
        model = given["model"]
        fields = profile_fields(model, f"unknown model '{model}'.", "--submit")
    for key, name, factor, least, most, unit in (
        ("forward_ms", "forward_ns", 1e6, 1, LONGEST_NS, "milliseconds"),
        ("backward_ms", "backward_ns", 1e6, 1, LONGEST_NS, "milliseconds"),
        ("gradient_mb", "gradient_bytes", MEBIBYTE, 0, MAX_BYTES, "MB"),
        ("memory_mb", "memory_bytes", MEBIBYTE, 0, MAX_BYTES, "MB"),
    ):
        if key in given:
            fields[name] = scaled(_number(given, key), factor, "--submit", least, most, unit)
    for key in ("gpus", "iterations"):
        if key not in given:
            raise _bad(f"needs {key}, such as {_SPEC}.")
        fields[key] = int(_number(given, key, whole=True))
    if "priority" in given:
        fields["priority"] = int(_number(given, "priority", whole=True))
    if "forward_ns" not in fields or "backward_ns" not in fields:
        raise _bad("needs a model, or forward_ms and backward_ms.")
    return Job(job_id=HYPOTHETICAL, arrival_ns=0, **fields)


def _number(given: dict[str, str], key: str, whole: bool = False) -> float:
    try:
        return int(given[key]) if whole else float(given[key])
    except ValueError:
        kind = "a whole number" if whole else "a number"
        raise _bad(f"{key} must be {kind}, not '{given[key]}'.") from None


def _bad(problem: str) -> InputError:
    return InputError(problem, field="--submit")


def _table(forecasts: list[Forecast]) -> TextTable:
    """Return when each job starts and ends, from now on, by forecast."""
    titles = ["now", "if"] if len(forecasts) > 1 else [""]
    figures = [f"{what} {title}".strip() for what in ("starts", "ends") for title in titles]
    table = TextTable(["job", "state"], [*figures, *(["change"] if len(forecasts) > 1 else [])])
    by_id = [{job.job_id: job for job in forecast.jobs} for forecast in forecasts]
    for job in forecasts[-1].jobs:
        found = [known.get(job.job_id) for known in by_id]
        now_ns = forecasts[0].made_ns
        starts = ["" if one is None else _when(one, one.start_ns, now_ns) for one in found]
        ends = ["" if one is None else _end(one, now_ns) for one in found]
        change = [_change(found[0], found[1])] if len(found) > 1 else []
        table.add_row(job.job_id, job.state, *starts, *ends, *change)
    return table


def _when(job: JobForecast, at_ns: int | None, now_ns: int) -> str:
    if at_ns is None:
        return "cannot"
    if at_ns == job.start_ns and job.state != "queued":
        return "-"
    seconds = round((at_ns - now_ns) / 1e9)
    return f"in {duration_text(seconds)}" if seconds else "now"


def _end(job: JobForecast, now_ns: int) -> str:
    if job.finish_ns is None and job.start_ns is not None:
        return "unknown"
    return _when(job, job.finish_ns, now_ns)


def _change(before: JobForecast | None, after: JobForecast | None) -> str:
    if before is None or after is None or before.finish_ns is None or after.finish_ns is None:
        return ""
    seconds = round((after.finish_ns - before.finish_ns) / 1e9)
    return f"{'+' if seconds > 0 else ''}{duration_text(seconds)}" if seconds else "-"


def _unable(forecasts: list[Forecast]) -> list[str]:
    """Return why jobs cannot run, in the last forecast that has them."""
    return [
        f"{job.job_id} cannot run. {job.note}" for job in forecasts[-1].jobs if job.start_ns is None
    ]


def _averages(forecasts: list[Forecast]) -> list[str]:
    """Return the averages of each forecast, over the jobs that all of them let end."""
    from headway.live.core.forecast import Common

    common = Common.of(forecasts[0], forecasts[-1])
    lines = []
    for title, forecast, average_s in zip(
        ("as it is", "if"), forecasts, (common.now_s, common.changed_s), strict=False
    ):
        average = f"a job is done in {duration_text(round(average_s))} on average, "
        lines.append(
            f"{title} (policy {forecast.policy}): {average if common.jobs else ''}"
            f"all in {duration_text(round(forecast.last_left_s))}"
        )
    if 0 < common.jobs < len(forecasts[-1].jobs):
        lines.append(f"averages are over the {common.jobs:,} jobs that end either way")
    return lines
