"""Submissions: every field is checked, and an error is one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.domain.errors import InputError
from headway.live.api.submission import parse_submission
from headway.live.core.events import JobSpec

GOOD: dict[str, Any] = {"command": ["python", "train.py", "--rate", "0.1"], "folder": "/home/me"}


def test_a_command_and_a_folder_are_enough() -> None:
    assert parse_submission(json.dumps(GOOD).encode()) == JobSpec(
        command=("python", "train.py", "--rate", "0.1"), folder="/home/me"
    )


def test_every_field_of_a_job_can_be_given() -> None:
    values = {
        "gpus": 4,
        "memory_bytes": 2**30,
        "iterations": 100,
        "model": "resnet50",
        "priority": -3,
        "retries": 2,
        "name": "mine",
        "environment": {"SEED": "1"},
        "forward_ns": 1,
        "backward_ns": 2,
        "gradient_bytes": 3,
    }
    spec = parse_submission(json.dumps(GOOD | values).encode())
    assert {name: getattr(spec, name) for name in values} == values


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "no command": ({"command": []}, "command: must be a program and its arguments."),
    "a command for a shell": ({"command": "rm -rf"}, "command: expected array, got str."),
    "a number in the command": ({"command": ["a", 1]}, "command: expected str, got int."),
    "a NUL": ({"command": ["a\0b"]}, "command: must not contain a NUL character."),
    "a lone surrogate": ({"command": ["\ud800"]}, "the body must be a JSON object"),
    "too many words": ({"command": ["a"] * 5000}, "command: must have at most 4,096 arguments"),
    "too long a command": (
        {"command": ["a" * 200_000]},
        "command: must have at most 4,096 arguments",
    ),
    "GPUs as text": ({"gpus": "2"}, "gpus: expected int, got str."),
    "half a GPU": ({"gpus": 0.5}, "gpus: expected int, got float."),
    "true GPUs": ({"gpus": True}, "gpus: expected int, got bool."),
    "no GPUs": ({"gpus": 0}, "gpus: must be at least 1, not 0."),
    "too many GPUs": ({"gpus": 10**30}, "gpus: "),
    "negative memory": ({"memory_bytes": -1}, "memory_bytes: must be at least 0, not -1."),
    "no iterations": ({"iterations": 0}, "iterations: must be at least 1, not 0."),
    "no retries": ({"retries": -1}, "retries: must be at least 0, not -1."),
    "a name of two lines": ({"name": "a\nb"}, "name: must be at most 200 printable characters"),
    "a long name": ({"name": "a" * 201}, "name: must be at most 200 printable characters"),
    "a relative folder": ({"folder": "here"}, "folder: must be an absolute path, not 'here'."),
    "no variable": (
        {"environment": {"A=B": ""}},
        "environment: 'A=B' is not a valid variable name.",
    ),
    "the scheduler's variable": (
        {"environment": {"HEADWAY_JOB": "7"}},
        "environment: HEADWAY_JOB is set by the scheduler.",
    ),
    "an unknown field": ({"shell": True}, "object contains unknown field shell."),
    "no time": ({"forward_ns": 0}, "forward_ns: must be at least 1, not 0."),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_field_is_refused_in_one_sentence_that_names_it(name: str) -> None:
    change, message = INVALID[name]
    with pytest.raises(InputError) as caught:
        parse_submission(json.dumps(GOOD | change).encode())
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*JobSpec.__struct_fields__, "x"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_a_job_or_an_input_error(body: bytes) -> None:
    problem = ""
    try:
        problem = "" if parse_submission(body).command else "no command"
    except InputError as error:
        assert str(error).count("\n") == 0  # noqa: PT017
    assert not problem
