"""What of the cluster's story takes no cluster: clients that notice, manifests that agree, refusals that help."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nightjar_api.service import NightjarService
from nightjar_benchmarks.control_plane import NoControlPlaneError
from nightjar_benchmarks.load.trace import Phase, requests_of
from nightjar_benchmarks.pairs.make import Pair
from nightjar_benchmarks.pairs.reference import expected_continuation
from nightjar_benchmarks.pairs.shapes import SHAPES
from nightjar_benchmarks.real_cluster import node, objects
from nightjar_benchmarks.real_cluster.clients import streamed, under_load
from nightjar_benchmarks.real_cluster.service import eventually


@pytest.fixture
def pair(tmp_path):
    # Its files are not read: what it says is computed.
    return Pair(tmp_path, SHAPES["tiny"], (0.9, 0.6), 0)


@contextmanager
def served(answer):
    """The URL of a server that gives `answer(request)` as tokens; None is an error of the server."""

    def reply(handler, request):
        tokens = answer(request)
        body = json.dumps({"choices": [{"token_ids": tokens}]}).encode()
        handler.send_response(200 if tokens is not None else 503)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with serving(reply) as url:
        yield url


@contextmanager
def serving(reply):
    """The URL of a server that calls `reply(handler, request)` for each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            reply(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def outcome_of(pair, answer):
    with served(answer) as url, under_load(url, "chat", pair) as outcome:
        eventually(lambda: outcome.right + len(outcome.wrong) >= 4, "four answers", 300)
    return outcome


def test_what_the_target_says_is_right(pair):
    outcome = outcome_of(pair, lambda request: expected_continuation(pair, request["prompt"], request["max_tokens"]))
    assert outcome.wrong == []


def test_another_token_is_wrong(pair):
    def last_token_off(request):
        found = expected_continuation(pair, request["prompt"], request["max_tokens"])
        return [*found[:-1], found[-1] + 1]

    outcome = outcome_of(pair, last_token_off)
    assert outcome.right == 0
    assert "is required, found" in outcome.wrong[0]


def test_a_failed_request_is_wrong(pair):
    outcome = outcome_of(pair, lambda request: None)
    assert outcome.right == 0
    assert "503" in outcome.wrong[0]


def test_an_accepted_answer_is_counted_before_its_first_token(pair):
    requests = requests_of(pair, Phase("long", 3, 3, 0, (5, 5)), pair.shape.context_tokens, 0)
    go = threading.Event()

    def reply(handler, request):
        handler.send_response(200)
        handler.end_headers()
        go.wait(30)
        tokens = expected_continuation(pair, request["prompt"], request["max_tokens"])
        handler.wfile.write(f"data: {json.dumps({'choices': [{'token_ids': tokens}]})}\n\ndata: [DONE]\n\n".encode())

    with serving(reply) as url, streamed(url, "chat", requests) as streams:
        eventually(lambda: streams.accepted == 3, "three answers that have begun", 30)
        assert streams.records == []
        go.set()
    assert [record.error for record in streams.records] == [None] * 3
    expected = [expected_continuation(pair, request.prompt_ids, 5) for request in requests]
    assert [record.token_ids for record in streams.records] == expected


def test_waiting_in_vain_says_for_what():
    began = time.monotonic()
    with pytest.raises(AssertionError, match=r"two pods within 0.3 s is required"):
        eventually(lambda: None, "two pods", 0.3)
    assert time.monotonic() - began >= 0.3


def test_the_service_is_one():
    service = NightjarService.model_validate(objects.service("chat", replicas=2))
    assert (service.metadata.name, service.spec.replicas) == ("chat", 2)


def test_without_a_node_the_message_says_why(tmp_path):
    with pytest.raises(NoControlPlaneError, match=r"a cluster whose node runs pods is required"):
        node.require(tmp_path)
