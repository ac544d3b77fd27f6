"""Start execd under the relocatable interpreter, as `main.c` does in the frozen one."""

import sys

sys.path.insert(0, __file__.rpartition("/")[0])

if sys.version_info < (3, 13):
    # Before 3.13 the C scanner takes the exception for malformed text from the loaded
    # `json.decoder`, and raises SystemError if nobody has loaded it.
    import json.decoder  # noqa: F401

from execd.__main__ import main

sys.exit(main(sys.argv[1:]))
