"""images/local/rootfs.py: small root file systems."""

from __future__ import annotations

import tarfile
from pathlib import Path

from images.local import rootfs


def test_busybox_is_every_command(tmp_path: Path) -> None:
    """
    Each applet is a link to the one program; the same input gives the same bytes.
    """
    program, outs = tmp_path / "bb", [tmp_path / "1.tar", tmp_path / "2.tar"]
    program.write_bytes(b"ELF")
    rootfs.busybox(program, ["sh", "ls", "busybox"], outs[0])
    rootfs.busybox(program, ["ls", "sh"], outs[1])

    assert outs[0].read_bytes() == outs[1].read_bytes()
    with tarfile.open(outs[0]) as tar:
        members = {member.name: member for member in tar}
    assert members["bin/sh"].linkname == "busybox"
    assert members["bin/busybox"].mode == 0o755
    assert members["tmp"].mode == 0o1777
    assert members["etc/passwd"].isfile()


def test_a_program_stands_alone(tmp_path: Path) -> None:
    """
    There is no shell, no folder, no library.
    """
    program, out = tmp_path / "p", tmp_path / "o.tar"
    program.write_bytes(b"ELF")
    rootfs.program(program, out)

    with tarfile.open(out) as tar:
        assert tar.getnames() == ["app"]
