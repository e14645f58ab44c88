"""Settings come from the first place that has them, and whatever is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.address import Address
from mainstem.config import SETTINGS, Config, resolve
from mainstem.errors import InvalidConfig
from mainstem.limits import MIB


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "some.toml"
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_anything_every_setting_is_its_default() -> None:
    resolved = resolve({}, {})
    assert resolved.config == Config()
    assert set(resolved.sources.values()) == {"default"}
    assert resolved.config.data_dir == Path("data")
    assert resolved.config.text == Address("127.0.0.1", 9091)
    assert resolved.config.text_segment_entries == 1_000_000


def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = _file(tmp_path, 'node = "of-file"\nbroker_id = 4\ndurability = "disk"')
    environ = {"MAINSTEM_NODE": "of-env", "MAINSTEM_BROKER_ID": "5"}
    resolved = resolve({"node": "of-flag"}, environ, file)
    config = resolved.config
    assert (config.node, config.broker_id, config.durability, config.log_level) == (
        "of-flag",
        5,
        "disk",
        "info",
    )
    assert resolved.sources["node"] == "flag"
    assert resolved.sources["broker_id"] == "environment"
    assert resolved.sources["durability"] == f"file {file}"
    assert resolved.sources["log_level"] == "default"


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.name)
def test_every_setting_can_come_from_each_source(row, tmp_path: Path) -> None:
    text = {
        "HOST:PORT|off": "0.0.0.0:77",
        "HOST:PORT": "broker.example:77",
        "PATH": "elsewhere",
        "N": "17",
        "BYTES": "1048576",
        "NAME": "somebody",
    }.get(row.kind.metavar, row.kind.metavar.split("|")[-1])
    expected = row.kind.parse(text)
    file = _file(tmp_path, f'{row.name} = "{text}"')
    assert getattr(resolve({row.name: text}, {}).config, row.name) == expected
    assert getattr(resolve({}, {row.env: text}).config, row.name) == expected
    assert getattr(resolve({}, {}, file).config, row.name) == expected
    if row.kind.secret:
        assert text not in row.shown(expected)
    else:
        assert row.kind.parse(row.shown(expected)) == expected


def test_an_empty_variable_is_an_unset_one() -> None:
    assert resolve({}, {"MAINSTEM_NODE": "", "MAINSTEM_CONFIG": ""}).sources["node"] == "default"


def test_mainstem_toml_is_read_when_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "mainstem.toml").write_text("broker_id = 9")
    assert resolve({}, {}).config.broker_id == 9


def test_the_config_variable_names_the_file_and_the_flag_wins_over_it(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text("broker_id = 1")
    two.write_text("broker_id = 2")
    assert resolve({}, {"MAINSTEM_CONFIG": str(two)}).config.broker_id == 2
    assert resolve({}, {"MAINSTEM_CONFIG": str(two)}, one).config.broker_id == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('data_dirr = "x"', "unknown setting 'data_dirr' in .*did you mean data_dir"),
        ('data-dir = "x"', "unknown setting 'data-dir' in .*did you mean data_dir"),
        ("zzz = 1", r"unknown setting 'zzz' in .*some.toml$"),
        ('[text]\nport = "x"', "text in .* takes text or a whole number"),
        ("text = false", "text in .* takes text or a whole number, not False"),
        ("broker_id = -1", "broker_id in .* takes 0 to "),
        ('durability = "disc"', "durability in .* takes one of .*did you mean disk"),
        ("broker_id = ", "is not valid TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        resolve({}, {}, _file(tmp_path, text))


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    for flag, environ in ((tmp_path / "no.toml", {}), (None, {"MAINSTEM_CONFIG": "no.toml"})):
        with pytest.raises(InvalidConfig, match=r"no\.toml does not exist"):
            resolve({}, environ, flag)
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match="cannot be read"):
        resolve({}, {}, tmp_path / "bad.toml")


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(InvalidConfig, match="MAINSTEM_TEXT needs a port"):
        resolve({}, {"MAINSTEM_TEXT": "localhost"})


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:9091", "127.0.0.1", 9091, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:65535", "::1", 65535, True),
        ("[::]:1", "::", 1, False),
        ("0.0.0.0:1", "0.0.0.0", 1, False),
        ("example.org:80", "example.org", 80, False),
        ("127.9.9.9:80", "127.9.9.9", 80, True),
    ],
)
def test_addresses_that_are_one(text: str, host: str, port: int, loopback: bool) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, str(address), address.loopback) == (host, port, text, loopback)


@pytest.mark.parametrize(
    "text", ["", ":", "9091", ":9091", "host", "host:", "host:-1", "host:65536", "host:x", "::1:80", "[::1]",
             "[x]:1", "[]:1", "a b:1", "host:１", "http://host:1"]
)  # fmt: skip
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"needs|has no"):
        Address.parse(text)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    try:
        address = Address.parse(text)
    except ValueError:
        return
    assert Address.parse(str(address)) == address


def test_a_door_can_be_off() -> None:
    assert resolve({"text": "off"}, {}).config.text is None


@pytest.mark.parametrize(
    ("text", "value"), [("1048576", MIB), ("2MiB", 2 * MIB), ("1 gib", 1024 * MIB), ("512KiB", MIB // 2)]
)
def test_sizes_take_units(text: str, value: int) -> None:
    assert resolve({"segment_bytes": text}, {}).config.segment_bytes == value


@pytest.mark.parametrize("text", ["", "x", "1MB", "1.5MiB", "MiB", "-1MiB", "1", "99999GiB"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--segment-bytes takes"):
        resolve({"segment_bytes": text}, {})
