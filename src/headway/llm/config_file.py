"""Models as users name them: one that comes with Headway, or a file."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from headway.configuration.conversion import TomlTable, given
from headway.configuration.document import Document
from headway.domain.errors import InputError, did_you_mean, shown
from headway.files import open_input
from headway.llm.config import LatentAttention, ModelConfig
from headway.llm.huggingface import huggingface_config, is_huggingface
from headway.toml_text import LARGEST_FILE_BYTES

_SUFFIX = ".toml"


class _LatentTable(TomlTable, kw_only=True):
    kv_rank: int
    query_rank: int = 0
    rotary_size: int
    value_size: int


class _ModelTable(TomlTable, kw_only=True):
    """Headway's own keys: the fields of `ModelConfig`, and where the sizes come from."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int | None = None
    ffn: int | None = None
    vocabulary: int
    sequence: int
    precision: str | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    gated_ffn: bool | None = None
    tied_embeddings: bool | None = None
    head_size: int | None = None
    shared_ffn: int | None = None
    dense_layers: int | None = None
    dense_ffn: int | None = None
    servers_per_token: int | None = None
    learned_positions: bool | None = None
    latent: _LatentTable | None = None
    name: str | None = None
    source: str | None = None


def config_names() -> list[str]:
    """Return the names of the models that come with Headway."""
    names = (item.name for item in _folder().iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def config_from(source: str | os.PathLike[str], *, sequence: int | None = None) -> ModelConfig:
    """Return a model: one that comes with Headway by name, or that of a file.

    Args:
        source: A name such as `gpt3-175b`; a `config.json` of Hugging Face, or a folder with one; a
            `.toml` or `.json` file with Headway's own keys.
        sequence: The tokens of a training sequence, in place of the file's.

    Raises:
        InputError: There is no such model, or its file is invalid.
    """
    config = _read(os.fspath(source), sequence)
    return config if sequence is None else replace(config, sequence=sequence)


def _read(source: str, sequence: int | None) -> ModelConfig:
    path = Path(source)
    if path.is_dir():
        path = path / "config.json"
    name = path.parent.name if path.name == "config.json" else path.stem
    if path.suffix == _SUFFIX:
        return _from_document(Document.read(str(path)), name)
    if path.suffix == ".json":
        document = _read_json(str(path))
        if not is_huggingface(document.content):
            return _from_document(document, name)
        try:
            return huggingface_config(document.content, name, sequence)
        except InputError as error:
            raise error.at(str(path)) from None
    if source not in (known := config_names()):
        raise InputError(
            f"unknown model {shown(source)}.{did_you_mean(source, known)} (Or give a config.json, "
            "a folder with one, or a .toml file.)",
            field="CONFIG",
        )
    with resources.as_file(_folder() / f"{source}{_SUFFIX}") as shipped:
        return _from_document(Document.read(str(shipped)), source)


def _from_document(document: Document, name: str) -> ModelConfig:
    table = document.convert(_ModelTable)
    values: dict[str, Any] = {
        "kv_heads": table.heads,
        "ffn": 4 * table.hidden,
        "name": name,
        **given(table),
    }
    values.pop("source", None)
    with document.at():
        if table.latent is not None:
            with document.at("latent"):
                values["latent"] = LatentAttention(**msgspec.structs.asdict(table.latent))
        return ModelConfig(**values)


def _read_json(path: str) -> Document:
    with open_input(path) as stream:
        data = stream.read(LARGEST_FILE_BYTES + 1)
    if len(data) > LARGEST_FILE_BYTES:
        raise InputError(f"larger than {LARGEST_FILE_BYTES:,} bytes.", source=path)
    try:
        content = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_without_repeats)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("not UTF-8 text.", source=path, line=line) from None
    except json.JSONDecodeError as error:
        problem = error.msg[0].lower() + error.msg[1:]
        raise InputError(
            f"not JSON: {problem}.", source=path, line=error.lineno, column=error.colno
        ) from None
    except InputError as error:
        raise error.at(path) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"cannot be parsed as JSON: {error}.", source=path) from None
    if not isinstance(content, dict):
        raise InputError("must be an object with the keys of a model.", source=path)
    return Document(content, source=path)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, in which no key may be repeated."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise InputError(f"the key {shown(key)} is repeated; give it once.")
        content[key] = value
    return content


def _folder() -> Traversable:
    return resources.files("headway.llm") / "configs"
