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


def test_musl_has_the_loader_where_programs_look_for_it(tmp_path: Path) -> None:
    """
    The loader keeps its name, which is written into every program that needs it.
    """
    parts = [tmp_path / name for name in ("bb", "ld-musl-any.so.1", "p")]
    for part in parts:
        part.write_bytes(part.name.encode())
    busybox, loader, program = parts
    rootfs.musl(busybox, ["sh"], loader, program, tmp_path / "o.tar")

    with tarfile.open(tmp_path / "o.tar") as tar:
        members = {member.name: member for member in tar}
        held = {name: tar.extractfile(members[name]) for name in ("lib/ld-musl-any.so.1", "app")}
    assert [held[name] is not None for name in held] == [True, True]
    assert [members[name].mode for name in held] == [0o755, 0o755]


def test_the_dressed_image_has_a_user_with_folders_of_its_own(tmp_path: Path) -> None:
    """
    Whom the image runs as exists, and owns where it works and what a volume is laid over.
    """
    (tmp_path / "bb").write_bytes(b"ELF")
    rootfs.dressed(tmp_path / "bb", ["sh"], tmp_path / "o.tar")

    with tarfile.open(tmp_path / "o.tar") as tar:
        members = {member.name: member for member in tar}
        people = tar.extractfile("etc/passwd")
        assert people is not None
        assert b"agent:x:1000:1000:" in people.read()
    assert {members[name].uid for name in ("home/agent", "home/agent/work", "data")} == {1000}
    assert members["bin/entry"].mode == 0o755
    assert members["bin"].uid == 0
