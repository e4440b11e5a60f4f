"""A report as plain values: what the schema says, no more and no less."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from hotset.chain.split import Decision
from hotset.doctor import examination, findings, measure, report
from hotset.doctor.judging import loop
from hotset.doctor.machine import usage
from hotset.doctor.report import Report
from hotset.doctor.showing.plain import DERIVED, as_json, as_plain
from hotset.errors import StorageError
from hotset.hardware import hardware, versions
from hotset.placement.cut import Cut
from hotset.placement.plan import Plan
from hotset.placement.prediction import Prediction
from tests import reports

SCHEMA = json.loads(files("hotset.doctor.showing").joinpath("report.schema.json").read_bytes())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
MAKERS = [
    reports.data_bound,
    reports.compute_bound,
    reports.single_process,
    reports.endless,
    reports.marked,
]


def _errors(plain: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(plain)]


@pytest.mark.parametrize("make", MAKERS)
def test_reports_are_what_the_schema_says(make: Callable[[], Report]) -> None:
    """And come back from JSON as they went in."""
    plain = make().as_dict()
    assert list(plain)[:2] == ["schema", "version"]
    assert (plain["schema"], plain["version"]) == ("hotset-doctor-report", 1)
    assert _errors(plain) == []
    assert json.loads(as_json(make())) == plain


def test_the_schema_is_one() -> None:
    """Of the draft that it names."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_schema_has_every_field_of_every_type() -> None:
    """A field that is added to a type must be added to the schema, with a description."""
    modules = (examination, findings, loop, measure, report, usage)
    types = {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if is_dataclass(each) and each.__module__.startswith("hotset.doctor")
    }
    types |= {each.__name__: each for each in (Plan, Cut, Decision, Prediction)}
    more = {"LoopTimes": [*DERIVED], "Cut": ["saved_ms_per_mb"]}
    assert set(SCHEMA["$defs"]) == set(types) - {"Report"} | {"Hardware"}
    for name, each in types.items():
        found = SCHEMA if name == "Report" else SCHEMA["$defs"][name]
        names = [field.name for field in fields(each)] + more.get(name, [])
        names = ["schema", "version", *names] if name == "Report" else names
        assert found["required"] == list(found["properties"]) == names, name
        assert found["additionalProperties"] is False, name
        if each is not Decision:
            assert all("description" in field for field in found["properties"].values()), name


def _objects(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all objects in plain values, but for the versions, which are anybody's."""
    if isinstance(value, dict):
        own = [] if path == ("versions",) else [path]
        return own + [p for key, each in value.items() for p in _objects(each, (*path, key))]
    if isinstance(value, list):
        return [p for key, each in enumerate(value) for p in _objects(each, (*path, key))]
    return []


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def test_a_foreign_key_fails_anywhere() -> None:
    """In every object of the report."""
    plain = reports.data_bound().as_dict()
    paths = _objects(plain)
    assert len(paths) > 50
    for path in paths:
        other = copy.deepcopy(plain)
        _at(other, path)["foreign"] = 1
        assert _errors(other), path


def test_a_missing_key_fails_anywhere() -> None:
    """Every key of every object is required."""
    plain = reports.data_bound().as_dict()
    for path in _objects(plain):
        for key in _at(plain, path):
            other = copy.deepcopy(plain)
            del _at(other, path)[key]
            assert not VALIDATOR.is_valid(other), (path, key)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("verdict", "bound"), "slow"),
        (("verdict", "confidence"), 1.5),
        (("gain", "value"), "3"),
        (("stages", 0, "lanes"), 1.5),
        (("timeline", "wait_s", 0), None),
        (("examination", "plan", "tier"), "moon"),
    ],
)
def test_a_wrong_value_fails(path: tuple[Any, ...], value: Any) -> None:
    """Of another type, or beyond what there is."""
    plain = reports.data_bound().as_dict()
    _at(plain, path[:-1])[path[-1]] = value
    assert len(_errors(plain)) >= 1
    assert _errors(reports.data_bound().as_dict()) == []


def test_what_is_no_number_is_null() -> None:
    """Infinite gains and steps that were left; the file says no Infinity and no NaN."""
    plain = reports.endless().as_dict()
    assert plain["gain"] == {"value": None, "low": None, "high": None}
    assert plain["stages"][0]["samples_per_s"] is None
    assert plain["batch_check"]["gain"] is None
    plain = reports.data_bound().as_dict()
    assert plain["timeline"]["step_s"][-1] is None
    assert plain["timeline"]["end_s"][-1] is None
    assert plain["timeline"]["wait_s"][1] == 60 * reports.MS
    assert set(plain["timeline"]["idle_s"]) == {None}
    assert "NaN" not in as_json(reports.data_bound())
    assert "Infinity" not in as_json(reports.endless())


def test_figures_that_follow_are_there_too() -> None:
    """The loop's sums, and what a cut saves for each MB."""
    made = reports.data_bound()
    plain = as_plain(made)
    assert plain["loop"]["wait_share"] == made.loop.wait_share
    assert plain["loop"]["samples_per_s"] == made.loop.samples_per_s
    cuts = plain["examination"]["plan"]["cuts"]
    assert [cut["saved_ms_per_mb"] for cut in cuts] == [2.5, 93_000 / 9830.4, None]
    assert math.isclose(
        plain["loop"]["loop_ms"],
        made.loop.wait_ms + made.loop.step_ms + made.loop.start_share_ms,
    )


def test_this_machine_is_what_the_schema_says() -> None:
    """As `hotset.hardware` tells of it."""
    made = replace(reports.compute_bound(), hardware=hardware(), versions=versions())
    assert _errors(made.as_dict()) == []


def test_a_report_is_written_as_json(tmp_path: Path) -> None:
    """Each part on a line of its own; what cannot be written is said with its path."""
    made = reports.marked()
    made.to_json(tmp_path / "report.json")
    text = (tmp_path / "report.json").read_text(encoding="ascii")
    assert json.loads(text) == made.as_dict()
    assert len(text.splitlines()) == 2 + len(made.as_dict())
    with pytest.raises(StorageError, match=r"nowhere.report\.json cannot be written: No such file"):
        made.to_json(tmp_path / "nowhere" / "report.json")


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (findings.Bound, ("Verdict", "bound")),
        (findings.Cause, ("Verdict", "cause")),
        (findings.StageKind, ("Stage", "kind")),
        (examination.LoaderKind, ("Facts", "kind")),
    ],
)
def test_the_schema_has_every_word(words: Any, place: tuple[str, str]) -> None:
    """A new bound, cause or kind is one of the schema's too."""
    kind, name = place
    assert SCHEMA["$defs"][kind]["properties"][name]["enum"] == list(get_args(words))
