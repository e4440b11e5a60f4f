"""An S3 server for the tests: moto's, in a process of its own, that counts and can be stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

CONTROL = "/-/"


class Watched:
    """An application that notes what it is asked for, and ends in the middle if it is told to.

    Args:
        app: the application.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app, self.requests = app, list[tuple[str, str, str]]()
        self._left: int | None = None

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith(CONTROL):
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self._told(path)).encode()]
        self.requests.append((method, path, environ.get("HTTP_RANGE", "")))
        if environ.get("HTTP_RANGE") and self._left is not None:
            self._left -= 1
            if self._left < 0:
                os._exit(1)
        return self._app(environ, start)

    def _told(self, path: str) -> Any:
        word, _, number = path.removeprefix(CONTROL).partition("/")
        if word == "end-after":
            self._left = int(number)
        return self.requests


class ObjectServer:
    """The process, as a test sees it.

    Attributes:
        url: of the server.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,  # closed with the tests, in whatever way they end
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    @property
    def storage_options(self) -> dict[str, Any]:
        """What s3fs is told to reach it."""
        return {
            "key": "test",
            "secret": "test",
            "client_kwargs": {"endpoint_url": self.url},
            "config_kwargs": {"retries": {"max_attempts": 0}},
        }

    def requests(self) -> list[tuple[str, str, str]]:
        """(method, path, range of bytes) of each request so far."""
        return [tuple(request) for request in self._control("requests")]

    def end_after(self, reads: int) -> None:
        """Makes the process end at the first read of a range behind so many."""
        self._control(f"end-after/{reads}")

    def _control(self, words: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{CONTROL}{words}", timeout=60) as answer:
            return json.load(answer)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def main() -> None:
    """Serves until standard input is closed; prints the server's URL first."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = Watched(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
