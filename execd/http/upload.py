"""`POST /files/upload`: multipart in, files out, while the body is still arriving."""

from __future__ import annotations

from execd.files import owners
from execd.files.receive import Receiver
from execd.http.files import paths_of
from execd.wire.multipart import Data, MultipartError, MultipartParser, Part, boundary_of
from specs.errors import InvalidFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from execd.app import Services
    from execd.http.exchange import Reply, Request

_BUFFER = 256 << 10
_SMALL = 16 << 10


async def upload(request: Request, reply: Reply, services: Services) -> None:
    """Write the files of a form (execd §7.5).

    Raises:
        InvalidFile: the body is not multipart, is cut, or its parts do not pair.
        BoxwrightError: a file cannot be written; those before it are.
    """
    owners.refresh()
    receiver = Receiver(paths_of(services))
    try:
        parser = MultipartParser(boundary_of(request.header("content-type")))
        buffer = bytearray(min(_BUFFER, max(_SMALL, request.length or _BUFFER)))
        whole = memoryview(buffer)
        while size := await request.read_into(whole):
            for event in parser.feed(buffer, size):
                if isinstance(event, Data):
                    await receiver.data(event.view)
                elif isinstance(event, Part):
                    await receiver.begin(event.name)
                else:
                    await receiver.end()
        parser.finish()
        await receiver.finish()
    except MultipartError as bad:
        raise InvalidFile(str(bad)) from None
    finally:
        receiver.close()
    await reply.empty()
