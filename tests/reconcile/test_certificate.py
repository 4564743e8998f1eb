"""A TLS server whose certificate is renewed while it listens."""

import asyncio
import logging
import socket
import ssl
import subprocess
from contextlib import asynccontextmanager

import pytest

from nightjar_operator.certificate import RenewedCertificate


def certify(folder):
    folder.mkdir(exist_ok=True)
    arguments = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=webhook"
    subprocess.run(
        ["openssl", *arguments.split(), "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],  # noqa: S607
        check=True,
        capture_output=True,
    )
    return (folder / "tls.crt").read_text(), (folder / "tls.key").read_text()


@pytest.fixture
def pairs(tmp_path):
    return [certify(tmp_path / name) for name in ("first", "second")]


async def hang_up(_reader, writer):
    writer.close()


@asynccontextmanager
async def serving(folder, pair, serve=hang_up):
    """`shown()` is the certificate that the next handshake shows."""
    files = folder / "tls.crt", folder / "tls.key"
    for file, text in zip(files, pair, strict=True):
        file.write_text(text)
    context = RenewedCertificate(*files).context
    context.load_cert_chain(*files)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]

    async def shown():
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))

    shown.port = port
    async with server:
        yield files, shown


async def test_the_next_handshake_shows_what_was_renewed(tmp_path, pairs):
    async with serving(tmp_path, pairs[0]) as (files, shown):
        assert await shown() == pairs[0][0]
        for file, text in zip(files, pairs[1], strict=True):
            file.write_text(text)
        assert await shown() == pairs[1][0]


@pytest.mark.parametrize("half", [0, 1])
async def test_half_of_a_pair_leaves_the_last_good_one_until_the_other_comes(tmp_path, pairs, half, caplog):
    async with serving(tmp_path, pairs[0]) as (files, shown):
        await shown()
        files[half].write_text(pairs[1][half])
        with caplog.at_level(logging.WARNING):
            assert [await shown(), await shown()] == [pairs[0][0]] * 2
        assert [record.message.split(":")[0].endswith("the last good one is") for record in caplog.records] == [True]
        files[1 - half].write_text(pairs[1][1 - half])
        assert await shown() == pairs[1][0]


async def test_a_file_that_is_gone_leaves_the_last_good_one(tmp_path, pairs):
    async with serving(tmp_path, pairs[0]) as (files, shown):
        await shown()
        files[1].unlink()
        assert await shown() == pairs[0][0]


async def test_a_connection_ends_although_the_other_side_says_no_goodbye(tmp_path, pairs):
    ended = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        await reader.readline()
        writer.close()
        try:
            # It would give up on the other side after half a minute, with an error.
            ended.set_result(await writer.wait_closed())
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            ended.set_exception(error)

    def connect(port):
        context = ssl.create_default_context(cafile=tmp_path / "tls.crt")
        context.check_hostname = False
        connection = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
        connection.sendall(b"hello\n")
        return connection

    async with serving(tmp_path, pairs[0], serve) as (_, shown):
        with await asyncio.to_thread(connect, shown.port):
            await ended
