"""Where compiled code is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = "from headway import jit; print(jit.cache_folder())"


def cache_folder(environment: dict[str, str], package: Path | None = None) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, **environment, "PYTHONPATH": str(package or "")},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


def test_the_folder_can_be_chosen(tmp_path: Path) -> None:
    assert cache_folder({"HEADWAY_CACHE_DIR": str(tmp_path / "c")}).parent == tmp_path / "c"
    without = {"HEADWAY_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "x")}
    assert cache_folder(without).parent == tmp_path / "x" / "headway"


def test_a_folder_that_cannot_be_made_is_replaced_by_a_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = cache_folder({"HEADWAY_CACHE_DIR": str(tmp_path / "file" / "c")})
    assert folder.is_dir()
    assert tmp_path not in folder.parents


def test_an_edit_anywhere_in_the_sources_changes_the_folder(tmp_path: Path) -> None:
    import shutil

    import headway

    copy = tmp_path / "headway"
    shutil.copytree(Path(headway.__file__).parent, copy)
    chosen = {"HEADWAY_CACHE_DIR": str(tmp_path / "c")}
    before = cache_folder(chosen, tmp_path)
    assert before == cache_folder(chosen, Path(headway.__file__).parent.parent)
    with (copy / "network" / "messages.py").open("a") as stream:
        stream.write("\n# edited\n")
    assert cache_folder(chosen, tmp_path) != before


def test_numbas_own_setting_is_left_as_it_was() -> None:
    import numba

    from headway import generate_workload, simulate

    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    simulate(generate_workload("paper", seed=0))
    assert before == numba.config.CACHE_DIR  # type: ignore[attr-defined]
