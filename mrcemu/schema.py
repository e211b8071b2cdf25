"""YAML text to checked, frozen pydantic models; every error names file, line, key, what was found and what is allowed.

Owns the reading of YAML (with the line of every key), dotted `--set` overrides, unit-typed fields, and the translation
of every failure into `ConfigError`. Refuses paths (text comes in) and the meaning of any one file: the models live with
their loaders. Stricter than YAML on purpose: one document, no tags, no aliases, no duplicate keys, no implicit dates.

Read `load` first.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from mrcemu.errors import ConfigError
from mrcemu.units import parse_fraction, parse_rate_bps, parse_size_bytes, parse_time_ns

Model = TypeVar("Model", bound=BaseModel)
Path = tuple[str | int, ...]

OVERRIDE_SOURCE = "--set"
_MAX_DEPTH = 32  # ours: deeper than any file of ours, far below Python's recursion limit
_TAG = "tag:yaml.org,2002:"


class FileModel(BaseModel):
    """Base of every model read from a file: unknown keys refused, no silent conversion, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def whole(low: int, high: int) -> BeforeValidator:
    """Validator of an integer in low .. high, both included."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return BeforeValidator(check)


def auto_or(parse: Callable[[object], object]) -> BeforeValidator:
    """Validator that turns the word `auto` into None and hands anything else to `parse`."""

    def check(value: object) -> object:
        if value == "auto":
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise ValueError(f"auto, or {error}") from None

    return BeforeValidator(check)


def one_of(*words: str) -> BeforeValidator:
    """Validator of one of several words; the message names the nearest ones first."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(" | ".join(words))
        return value

    return BeforeValidator(check)


TimeNs = Annotated[int, BeforeValidator(parse_time_ns)]
SizeBytes = Annotated[int, BeforeValidator(parse_size_bytes)]
RateBps = Annotated[int, BeforeValidator(parse_rate_bps)]
Fraction = Annotated[float, BeforeValidator(parse_fraction)]


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: plain data, and where each key of it was written."""

    file: str
    data: dict[str, Any]
    lines: dict[Path, int]  # 1-based; () is the document itself
    overridden: dict[Path, str]  # path -> "--set KEY=VALUE" that put it there

    def place(self, path: Path) -> tuple[str, int | None]:
        """(file, line) of the nearest enclosing thing that was written, or ("--set KEY=VALUE", None)."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.overridden:
                return self.overridden[path[:length]], None
            if path[:length] in self.lines:
                return self.file, self.lines[path[:length]]
        return self.file, None

    def error(self, path: Path, found: object, allowed: str) -> ConfigError:
        """A `ConfigError` about the value at `path`; `found` is shown as is when it is text, as JSON otherwise."""
        file, line = self.place(path)
        shown = found if isinstance(found, str) else json.dumps(found, default=str)
        return ConfigError(file=file, line=line, key=dotted(path), found=shown or "nothing", allowed=allowed)


def dotted(path: Path) -> str:
    """`timeline.0.at` for ("timeline", 0, "at"); "file" for the document itself."""
    return ".".join(str(part) for part in path) or "file"


def parse_yaml(text: str, *, file: str) -> Document:
    """One YAML mapping as plain data with line numbers; ConfigError for anything else."""
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(
            file=file,
            line=mark.line + 1 if mark else None,
            key="YAML syntax",
            found=str(error.problem or error.context),
            allowed="one YAML document (indent with spaces, quote text that holds ': ' or ' #')",
        ) from None
    except (YAMLError, RecursionError) as error:
        reason = "nesting too deep" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise ConfigError(
            file=file, line=None, key="YAML syntax", found=reason, allowed="one plain YAML document"
        ) from None
    lines: dict[Path, int] = {(): 1}
    if not isinstance(node, MappingNode):
        found = "an empty file" if node is None else "no mapping at the top"
        raise ConfigError(file=file, line=1, key="file", found=found, allowed="a mapping of keys to values")
    data = _plain(node, (), _Reader(file, lines, set()))
    return Document(file, data, lines, {})


@dataclass(frozen=True, slots=True)
class _Reader:
    file: str
    lines: dict[Path, int]
    seen: set[int]  # ids of the nodes met: a second meeting is an alias

    def refuse(self, node: Node, path: Path, found: str, allowed: str) -> ConfigError:
        line = node.start_mark.line + 1
        return ConfigError(file=self.file, line=line, key=dotted(path), found=found, allowed=allowed)


def _plain(node: Node, path: Path, reader: _Reader) -> Any:
    if id(node) in reader.seen:
        raise reader.refuse(node, path, "an alias", "the value written out (no anchors and aliases)")
    if len(path) > _MAX_DEPTH:
        raise reader.refuse(node, path[:3], "nesting too deep", f"at most {_MAX_DEPTH} levels")
    reader.seen.add(id(node))
    if isinstance(node, MappingNode):
        return _plain_mapping(node, path, reader)
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            reader.lines[(*path, index)] = item.start_mark.line + 1
        return [_plain(item, (*path, index), reader) for index, item in enumerate(node.value)]
    return _plain_scalar(node, path, reader)


def _plain_mapping(node: MappingNode, path: Path, reader: _Reader) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, ScalarNode):
            raise reader.refuse(key_node, path, "a key that is no word", "plain text keys")
        key = str(key_node.value)
        here = (*path, key)
        if key in result:
            first = reader.lines[here]
            raise reader.refuse(key_node, here, f"the key twice (first on line {first})", "each key once")
        reader.lines[here] = key_node.start_mark.line + 1
        result[key] = _plain(value_node, here, reader)
    return result


def _plain_scalar(node: Node, path: Path, reader: _Reader) -> Any:
    tag, raw = str(node.tag).removeprefix(_TAG), str(node.value)
    if tag in ("str", "timestamp", "value", "merge"):
        return raw
    if tag == "null":
        return None
    if tag == "bool":
        return raw.lower() == "true"
    try:
        if tag == "int":
            return int(raw.replace("_", ""), 0) if not raw.lstrip("+-").isdigit() else int(raw)
        if tag == "float":
            return float(raw.replace("_", ""))
    except ValueError:
        return raw
    raise reader.refuse(node, path, f"the tag {node.tag}", "plain values without tags")


def apply_overrides(document: Document, overrides: Sequence[str]) -> Document:
    """The document with `KEY=VALUE` overrides put in (dotted keys, list items by number, values read as YAML)."""
    data = copy.deepcopy(document.data)
    overridden = dict(document.overridden)
    for text in overrides:
        key, equals, value = text.partition("=")
        source = f"{OVERRIDE_SOURCE} {text}"
        if not equals or not key.strip(".") or "" in key.split("."):
            raise ConfigError(file=source, line=None, key=key or "key", found=repr(text), allowed="KEY=VALUE, dotted")
        path = _put(data, key.split("."), _override_value(value, source, key), source)
        overridden[path] = source
    return Document(document.file, data, document.lines, overridden)


def _override_value(text: str, source: str, key: str) -> Any:
    if not text.strip():
        return ""
    try:
        return parse_yaml(f"value: {text}\n", file=source).data["value"]
    except ConfigError as error:
        raise ConfigError(file=source, line=None, key=key, found=error.found, allowed="a YAML value") from None


def _put(data: dict[str, Any], keys: list[str], value: Any, source: str) -> Path:
    here: Any = data
    path: list[str | int] = []
    for position, key in enumerate(keys):
        last = position == len(keys) - 1
        step = _step(here, key, ".".join(keys[: position + 1]), source)
        path.append(step)
        if last:
            here[step] = value
        elif isinstance(here, dict) and step not in here:
            here[step] = {}
        here = here[step]
    return tuple(path)


def _step(here: Any, key: str, so_far: str, source: str) -> str | int:
    if isinstance(here, dict):
        return key
    if isinstance(here, list):
        if key.isdecimal() and int(key) < len(here):
            return int(key)
        allowed = f"an item from 0 to {len(here) - 1}" if here else "no item: the list is empty"
        raise ConfigError(file=source, line=None, key=so_far, found=repr(key), allowed=allowed)
    raise ConfigError(
        file=source,
        line=None,
        key=so_far,
        found=f"a key below the plain value {here!r}",
        allowed="the key of a mapping",
    )


def load(text: str, model: type[Model], *, file: str, overrides: Sequence[str] = ()) -> tuple[Model, Document]:
    """Text to a checked model, and the document for later errors that need a line; ConfigError on the first fault."""
    document = apply_overrides(parse_yaml(text, file=file), overrides)
    return validate(document, model), document


def validate(document: Document, model: type[Model]) -> Model:
    """The document's data as `model`; ConfigError for the first thing that does not fit."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise _config_error(document, model, error.errors(include_url=False)) from None


def _config_error(document: Document, model: type[BaseModel], details: list[ErrorDetails]) -> ConfigError:
    """Unknown keys first: a misspelt key is usually also a missing one, and the spelling is what mends both."""
    detail = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    path: Path = tuple(detail["loc"])
    if detail["type"] == "extra_forbidden":
        return document.error(path, f"the unknown key {path[-1]!r}", _keys_nearest(_model_at(model, path[:-1]), path))
    if detail["type"] == "missing":
        return document.error(path, "nothing", "this key is required")
    return document.error(path, detail["input"], _allowed(detail, _model_at(model, path)))


_EXPECTED = {
    "string_type": "text",
    "bool_type": "true | false",
    "int_type": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys to values",
}


def _allowed(detail: ErrorDetails, model: type[BaseModel] | None) -> str:
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if detail["type"] in ("model_type", "model_attributes_type") and model is not None:
        return f"a mapping with the keys {', '.join(model.model_fields)}"
    return _EXPECTED.get(detail["type"], detail["msg"])


def _keys_nearest(model: type[BaseModel] | None, path: Path) -> str:
    keys = list(model.model_fields) if model is not None else []
    return ", ".join(nearest(str(path[-1]), keys, count=len(keys)))


def nearest(word: str, words: Sequence[str], count: int = 4) -> list[str]:
    """The `count` words most like `word`, the most similar first."""
    ranked = sorted(words, key=lambda w: -difflib.SequenceMatcher(None, word.lower(), w.lower()).ratio())
    return ranked[:count]


def _model_at(model: type[BaseModel] | None, path: Path) -> type[BaseModel] | None:
    """The model class that describes the value at `path`, or None where there is none."""
    for part in path:
        if isinstance(part, int) or model is None:
            continue
        field = model.model_fields.get(part)
        model = _model_in(field.annotation) if field is not None else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
