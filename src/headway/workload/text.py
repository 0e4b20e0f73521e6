"""Reads text files line by line in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from headway.domain.errors import InputError

LONGEST_LINE = 2**16
"""Bytes; a line of a workload has about 80, a line of a trace at most a few hundred."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def text_lines(stream: IO[bytes], source: str, not_text: str, too_long: str) -> Iterator[str]:
    """Yield decoded lines of bounded length; the last two arguments complete the messages."""
    number = 0
    while data := stream.readline(LONGEST_LINE + 1):
        number += 1
        if number == 1:
            data = data.removeprefix(_BYTE_ORDER_MARK)
        if number == 1 and b"\r" in data.rstrip(b"\r\n"):
            raise InputError(
                "lines end in CR alone; they must end in LF or CR LF.", source=source, line=number
            )
        if b"\x00" in data or data.startswith((b"PAR1", b"\x1f\x8b")):
            raise InputError(not_text, source=source, line=number)
        if len(data) > LONGEST_LINE:
            raise InputError(
                f"longer than {LONGEST_LINE:,} bytes; {too_long}", source=source, line=number
            )
        try:
            yield data.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"not UTF-8 text: byte 0x{data[error.start]:02x}.",
                source=source,
                line=number,
                column=error.start + 1,
            ) from None
