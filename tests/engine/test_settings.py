"""`additional_config["nightjar"]`: what may stand there, and how anything else is refused."""

from dataclasses import asdict

import pytest

from nightjar_engine_patch.errors import RefusalError
from nightjar_engine_patch.settings import EngineSettings, parse


def test_only_the_socket_is_required_and_the_defaults_are_these():
    assert asdict(parse({"nightjar": {"socket": "/run/e.sock"}})) == {
        "socket": "/run/e.sock",
        "fallback_gamma": 0,
        "catch_up_tokens": None,
        "draft_graph_requests": 512,
        "draft_tiles": None,
        "report_queue": 4096,
        "elastic": False,
    }


def test_what_is_given_is_what_is_read():
    given = {"socket": "e.sock", "fallback_gamma": 3, "catch_up_tokens": 16, "report_queue": 16, "elastic": True}
    assert parse({"nightjar": given, "other plugin": 1}) == EngineSettings(**given)


def test_the_longest_path_a_socket_can_have_is_accepted():
    path = "/" + "ü" * 53
    assert len(path.encode()) == 107
    assert parse({"nightjar": {"socket": path}}).socket == path


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "nightjar: an object is required, found None"),
        (True, "nightjar: an object is required, found True"),
        ([], r"nightjar: an object is required, found \[\]"),
        ({}, r"nightjar\.socket: a path for the control plane's socket is required"),
        ({"sockets": "e"}, r"nightjar: unknown keys \['sockets'\]; known are \[.*'socket'\]"),
        ({"socket": ""}, r"nightjar\.socket: a path is required, found ''"),
        ({"socket": 7}, r"nightjar\.socket: a path is required, found 7"),
        ({"socket": "/" + "ü" * 54}, r"nightjar\.socket: a path of at most 107 bytes is required"),
        ({"socket": "/run/%41.sock"}, r"nightjar\.socket: a path without % is required, found '/run/%41.sock'"),
        ({"fallback_gamma": -1}, r"nightjar\.fallback_gamma: an integer of at least 0 is required, found -1"),
        ({"fallback_gamma": True}, r"nightjar\.fallback_gamma: an integer of at least 0 is required, found True"),
        ({"fallback_gamma": 1.0}, r"nightjar\.fallback_gamma: an integer of at least 0 is required, found 1\.0"),
        ({"catch_up_tokens": 15}, r"nightjar\.catch_up_tokens: an integer of at least 16 is required, found 15"),
        ({"catch_up_tokens": "64"}, r"nightjar\.catch_up_tokens: an integer of at least 16 is required, found '64'"),
        (
            {"draft_graph_requests": -1},
            r"nightjar\.draft_graph_requests: an integer of at least 0 is required, found -1",
        ),
        ({"report_queue": 0}, r"nightjar\.report_queue: an integer of at least 16 is required, found 0"),
        ({"draft_tiles": ""}, r"nightjar\.draft_tiles: a path is required, found ''"),
        ({"draft_tiles": {}}, r"nightjar\.draft_tiles: a path is required, found \{\}"),
        ({"elastic": 1}, r"nightjar\.elastic: true or false is required, found 1"),
        ({"report_queue": None}, r"nightjar\.report_queue: an integer of at least 16 is required, found None"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(found, message):
    names_a_number = isinstance(found, dict) and found and "socket" not in found and "sockets" not in found
    settings = {"socket": "e.sock"} | found if names_a_number else found
    with pytest.raises(RefusalError, match=r"^additional_config\." + message):
        parse({"nightjar": settings})
