"""Put execd together: the table of routes, what they share, start and end."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would import `enum`; typeshed has no stub
import sys

from execd.http.auth import Gate
from execd.http.errors import guarded
from execd.http.server import Server, ServerRequest
from execd.loop import Event, complain, current_loop
from execd.wire.target import percent_text
from specs.errors import MethodNotAllowed, RouteNotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from execd.commands.run import Commands
    from execd.config import Settings
    from execd.environment import Environment
    from execd.http.exchange import Reply, Request
    from execd.metrics.sample import Sampler
    from execd.sessions.shell import Sessions

    Route = Callable[[Request, Reply, "Services"], Awaitable[None]]

# (method, path, module, function): a module is loaded when its first route is asked for.
ROUTES = (
    ("GET", "/ping", "execd.http.ping", "ping"),
    ("GET", "/ready", "execd.http.ping", "ready"),
    ("POST", "/command", "execd.http.commands", "run"),
    ("DELETE", "/command", "execd.http.commands", "interrupt"),
    ("GET", "/command/status/{id}", "execd.http.commands", "status"),
    ("GET", "/command/{id}/logs", "execd.http.commands", "logs"),
    ("POST", "/session", "execd.http.sessions", "create"),
    ("POST", "/session/{id}/run", "execd.http.sessions", "run"),
    ("DELETE", "/session/{id}", "execd.http.sessions", "delete"),
    ("GET", "/files/info", "execd.http.files", "info"),
    ("DELETE", "/files", "execd.http.files", "delete"),
    ("POST", "/files/permissions", "execd.http.files", "permissions"),
    ("POST", "/files/mv", "execd.http.files", "move"),
    ("GET", "/files/search", "execd.http.files", "search"),
    ("POST", "/files/replace", "execd.http.files", "replace"),
    ("POST", "/files/upload", "execd.http.upload", "upload"),
    ("GET", "/files/download", "execd.http.files", "download"),
    ("GET", "/directories/list", "execd.http.directories", "list_"),
    ("POST", "/directories", "execd.http.directories", "create"),
    ("DELETE", "/directories", "execd.http.directories", "delete"),
    ("GET", "/metrics", "execd.http.metrics", "metrics"),
    ("GET", "/metrics/watch", "execd.http.metrics", "watch"),
    ("GET", "/v1/isolated/capabilities", "execd.http.ping", "isolation"),
)

# What the protocol has and this version lacks, by the first words of the path.
UNSUPPORTED = ("/pty", "/code", "/v1/isolated", "/v1/filesystem")

# Never ends by itself, so there is no head to ask for.
ENDLESS = frozenset({"/metrics/watch"})


class Services:
    """What routes share; each is made when first asked for."""

    def __init__(self, config: Settings) -> None:
        self.config = config
        self._commands: Commands | None = None
        self._sessions: Sessions | None = None
        self._environment: Environment | None = None
        self._metrics: Sampler | None = None

    @property
    def environment(self) -> Environment:
        """The environment of user processes."""
        if self._environment is None:
            from execd.environment import Environment

            self._environment = Environment(self.config.base_environ, self.config.envs_file, complain)
        return self._environment

    @property
    def commands(self) -> Commands:
        """The commands that run or ran."""
        if self._commands is None:
            from execd.commands.run import Commands

            self._commands = Commands(self.config, self.environment)
        return self._commands

    @property
    def sessions(self) -> Sessions:
        """The shell sessions."""
        if self._sessions is None:
            from execd.sessions.shell import Sessions

            self._sessions = Sessions(self.config, self.environment)
        return self._sessions

    @property
    def metrics(self) -> Sampler:
        """The sampler of the sandbox's resources."""
        if self._metrics is None:
            from execd.metrics.sample import Sampler

            self._metrics = Sampler()
        return self._metrics

    async def close(self) -> None:
        """End what was started: commands and sessions."""
        if self._sessions is not None:
            await self._sessions.close()
        if self._commands is not None:
            await self._commands.close()


class Table:
    """Find the route of a request."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, tuple[str, str]]] = {}
        self._patterns: list[tuple[list[str], dict[str, tuple[str, str]]]] = []
        self._loaded: dict[tuple[str, str], Route] = {}
        for method, path, module, function in ROUTES:
            if "{" not in path:
                self._exact.setdefault(path, {})[method] = (module, function)
                continue
            words = path.split("/")
            for known, methods in self._patterns:
                if known == words:
                    methods[method] = (module, function)
                    break
            else:
                self._patterns.append((words, {method: (module, function)}))

    def find(self, request: Request) -> Route:
        """
        Return the route of a request, its `params` filled in.

        Raises:
            RouteNotFound: there is none.
            MethodNotAllowed: there is one, for another method.
        """
        methods = self._exact.get(request.path)
        if methods is None:
            methods = self._match(request)
        if methods is None:
            for prefix in UNSUPPORTED:
                if request.path == prefix or request.path.startswith(prefix + "/"):
                    return self._load("execd.http.ping", "unsupported")
            raise RouteNotFound(f"there is no {request.path}")
        wanted = request.method
        if wanted == "HEAD" and request.path not in ENDLESS:
            wanted = "GET"
        place = methods.get(wanted)
        if place is None:
            raise MethodNotAllowed(f"{request.path} does not take {request.method}", details=sorted(methods))
        return self._load(*place)

    def _match(self, request: Request) -> dict[str, tuple[str, str]] | None:
        """Match the raw path word by word, so that an encoded slash stays inside its word."""
        words = request.target.partition(b"?")[0].split(b"/")
        for pattern, methods in self._patterns:
            if len(pattern) != len(words):
                continue
            params = {}
            for want, raw in zip(pattern, words, strict=True):
                word = percent_text(raw)
                if want.startswith("{") and word:
                    params[want[1:-1]] = word
                elif want != word:
                    break
            else:
                request.params = params
                return methods
        return None

    def _load(self, module: str, function: str) -> Route:
        route = self._loaded.get((module, function))
        if route is None:
            __import__(module)
            loaded: Route = getattr(sys.modules[module], function)
            route = self._loaded[module, function] = loaded
        return route


class App:
    """Answer requests: token, proxy, route."""

    def __init__(self, settings: Settings) -> None:
        self.services = Services(settings)
        self._gate = Gate(settings)
        self._table = Table()
        self.server = Server(self.handle)

    async def handle(self, request: Request, reply: Reply) -> None:
        """
        Answer one request.

        Raises:
            ClientGone: the client hung up.
        """
        await guarded(self._answer, request, reply)

    async def _answer(self, request: Request, reply: Reply) -> None:
        self._gate.check(request)
        if request.target.startswith(b"/proxy") and isinstance(request, ServerRequest):
            from execd.http.proxy import forward, resolve

            port = resolve(request, self.server.port)
            if port is not None:
                await forward(request, reply, port)
                return
        await self._table.find(request)(request, reply, self.services)

    async def listen(self) -> None:
        """
        Bind the port and accept from now on.

        Raises:
            OSError: the address cannot be used.
        """
        settings = self.services.config
        await self.server.listen(settings.host, settings.port)
        self.server.start()

    async def close(self) -> None:
        """Stop listening, break off connections, end what runs."""
        await self.server.close()
        await self.services.close()


async def serve(settings: Settings, entrypoint: list[str]) -> int:
    """
    Listen, then run the entrypoint, or wait for SIGTERM when there is none.

    Returns:
        The exit status: the entrypoint's, or 0.

    Raises:
        OSError: the port cannot be had.
    """
    app = App(settings)
    # Before the entrypoint, so that nothing in the sandbox can take the port.
    await app.listen()
    try:
        if entrypoint:
            from execd.processes.entrypoint import supervise

            return await supervise(entrypoint, settings, app.services)
        stop = Event()
        loop = current_loop()
        for number in (_signal.SIGTERM, _signal.SIGINT):
            loop.on_signal(number, stop.set)
        await stop.wait()
        return 0
    finally:
        await app.close()
