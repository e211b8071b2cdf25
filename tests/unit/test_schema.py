"""Every way a file can be wrong yields one message with file, line, key, found and allowed."""

from __future__ import annotations

from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from mrcemu.errors import ConfigError
from mrcemu.schema import (
    FileModel,
    Fraction,
    RateBps,
    SizeBytes,
    TimeNs,
    auto_or,
    load,
    nearest,
    one_of,
    parse_yaml,
    whole,
)
from mrcemu.units import parse_time_ns


class Inner(FileModel):
    nic: RateBps
    loss: Fraction = 0.0


class Sample(FileModel):
    name: str
    planes: Annotated[int, whole(1, 16)]
    rate: Inner
    delay: Annotated[int | None, auto_or(parse_time_ns)] = None
    size: SizeBytes = 0
    wait: TimeNs = 0
    kind: Annotated[str, one_of("mrc", "roce")] = "mrc"
    steps: list[Inner] = Field(default_factory=list)


GOOD = "name: x\nplanes: 8\nrate:\n  nic: 25mbit\n"


def refused(text: str, *overrides: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(text, Sample, file="a.yaml", overrides=overrides)
    return caught.value


def test_units_become_base_units() -> None:
    sample, _ = load(GOOD + "delay: 1.2ms\nsize: 1MiB\nwait: 3s\n", Sample, file="a.yaml")
    assert (sample.rate.nic, sample.delay, sample.size, sample.wait) == (25_000_000, 1_200_000, 1 << 20, 3 * 10**9)


def test_auto_becomes_none() -> None:
    assert load(GOOD + "delay: auto\n", Sample, file="a.yaml")[0].delay is None


@pytest.mark.parametrize(
    ("text", "line", "key", "found", "allowed"),
    [
        (GOOD + "plannes: 3\n", 5, "plannes", "unknown key", "planes, "),
        (GOOD.replace("nic: 25mbit", "nic: 25mbit\n  los: 1%"), 5, "rate.los", "unknown key", "loss, nic"),
        (GOOD + "delay: 12\n", 5, "delay", "12", "auto, or a time with a unit"),
        (GOOD.replace("25mbit", "25"), 4, "rate.nic", "25", "a rate with a unit"),
        (GOOD.replace("25mbit", "25Mbps"), 4, "rate.nic", "25Mbps", "a rate with a unit"),
        (GOOD.replace("8", "17"), 2, "planes", "17", "a whole number from 1 to 16"),
        (GOOD.replace("8", "true"), 2, "planes", "true", "a whole number from 1 to 16"),
        (GOOD.replace("8", "'8'"), 2, "planes", "8", "a whole number from 1 to 16"),
        (GOOD.replace("name: x", "name: 3"), 1, "name", "3", "text"),
        (GOOD + "planes: 4\n", 5, "planes", "twice (first on line 2)", "each key once"),
        (GOOD + "kind: tcp\n", 5, "kind", "tcp", "mrc | roce"),
        (GOOD + "steps: 3\n", 5, "steps", "3", "a list"),
        (GOOD + "steps:\n- nic: 1mbit\n- nic: 2\n", 7, "steps.1.nic", "2", "a rate"),
        (GOOD + "steps:\n- nic: 1mbit\n- 4\n", 7, "steps.1", "4", "a mapping with the keys nic, loss"),
        ("name: x\nplanes: 8\n", 1, "rate", "nothing", "required"),
        ("name: x\nrate: {loss: 1%}\nplanes: 1\n", 2, "rate.nic", "nothing", "required"),
        ("name: [x\nplanes: 8\n", 2, "YAML syntax", "expected", "one YAML document"),
        ("name: x\n\tplanes: 8\n", 2, "YAML syntax", "", "indent with spaces"),
        ("- a\n- b\n", 1, "file", "no mapping", "a mapping"),
        ("", 1, "file", "an empty file", "a mapping"),
        ("name: &a x\nkind: *a\n", 1, "kind", "an alias", "written out"),
        ("name: !!python/name:os.system x\n", 1, "name", "tag", "without tags"),
        ("a: 1\n---\nb: 1\n", 2, "YAML syntax", "another document", "one YAML document"),
    ],
)
def test_a_fault_names_line_key_found_and_allowed(text: str, line: int, key: str, found: str, allowed: str) -> None:
    error = refused(text)
    assert (error.file, error.line, error.key) == ("a.yaml", line, key)
    assert found in error.found
    assert allowed in error.allowed
    assert str(error).startswith(f"a.yaml:{line}: {key}: found ")


def test_overrides_replace_nested_values_and_list_items() -> None:
    text = GOOD + "steps:\n- nic: 1mbit\n"
    sample, _ = load(text, Sample, file="a.yaml", overrides=["rate.nic=3mbit", "steps.0.nic=2mbit", "planes=4"])
    assert (sample.rate.nic, sample.steps[0].nic, sample.planes) == (3_000_000, 2_000_000, 4)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("planes=17", "planes"),
        ("rate.nic=3", "rate.nic"),
        ("rate.nick=3mbit", "rate.nick"),
        ("name.x=1", "name.x"),
        ("steps.0.nic=1mbit", "steps.0"),
        ("planes", "planes"),
        ("a..b=1", "a..b"),
        ("planes=[1", "planes"),
    ],
)
def test_a_bad_override_is_named_as_such(override: str, key: str) -> None:
    error = refused(GOOD + "steps: []\n", override)
    assert (error.file, error.line, error.key) == (f"--set {override}", None, key)


def test_the_last_override_wins_and_the_file_is_not_changed() -> None:
    document = parse_yaml(GOOD, file="a.yaml")
    sample, _ = load(GOOD, Sample, file="a.yaml", overrides=["planes=2", "planes=3"])
    assert (sample.planes, document.data["planes"]) == (3, 8)


def test_deep_nesting_is_refused_not_a_crash() -> None:
    for depth in (40, 5000):
        assert "deep" in refused("a: " + "[" * depth + "]" * depth).found


def test_nearest_puts_the_most_similar_first() -> None:
    assert nearest("goodputt", ["jain", "goodput", "trims"])[0] == "goodput"


def outcome(text: str, *overrides: str) -> str:
    """ "read" or "refused"; anything but a ConfigError escapes and fails the test."""
    try:
        load(text, Sample, file="a.yaml", overrides=overrides)
    except ConfigError:
        return "refused"
    return "read"


@given(st.text(max_size=60))
def test_random_text_is_refused_with_a_config_error(text: str) -> None:
    assert outcome(text) == "refused"  # no random text spells out the required keys


@given(st.text(alphabet="abc.=01[]{}: \n'\"&*!#%", max_size=30))
def test_a_random_override_is_refused_with_a_config_error(text: str) -> None:
    assert outcome(GOOD, text) == "refused"  # the alphabet spells no key of the model
