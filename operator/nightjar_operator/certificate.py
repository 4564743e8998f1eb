"""A certificate that is renewed while it is served.

Every handshake shows what the files hold at that moment, so nothing has to be watched or started again, and no
connection is lost. Files that do not belong together, as while somebody writes them, leave the last good pair.
"""

import contextlib
import hashlib
import logging
import ssl
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


class _Unwaiting(ssl.SSLObject):
    """Says goodbye and does not wait for the other side's, as TLS allows.

    An API server that answers late would otherwise find nobody: connections would outlive the loop they belong to.
    """

    def unwrap(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            super().unwrap()


class RenewedCertificate:
    """`context` is for the server that listens."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._seen = ""
        self._newest: ssl.SSLContext | None = None
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.sslobject_class = _Unwaiting
        self.context.sni_callback = self._choose

    def _choose(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called by every handshake, with a name or without."""
        self._read()
        if self._newest is not None:
            connection.context = self._newest

    def _read(self) -> None:
        try:
            seen = hashlib.sha256(b"".join(file.read_bytes() for file in self._files)).hexdigest()
            if seen == self._seen:
                return
            # Whatever comes of it, it is tried and told once.
            self._seen = seen
            newest = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            newest.load_cert_chain(*self._files)
        except OSError as error:  # Of TLS too.
            logger.warning(
                "the certificate in %s and %s cannot be served, the last good one is: %s", *self._files, error
            )
        else:
            self._newest = newest
