"""Patience for scripts that tests run: a busy machine answers late, which is not what they test."""

from __future__ import annotations

from headway.worker import client, handshake, session
from waiting import PATIENCE_S


def be_patient() -> None:
    """Wait for the gate for longer than a real job would."""
    session.CONNECT_WAIT_S = handshake.CONNECT_TIMEOUT_S = client.SILENCE_TIMEOUT_S = PATIENCE_S
