"""The frozen table as C."""

from images.bundle.frozen import render_table


def test_each_module_is_a_row() -> None:
    """
    A row points into the one blob; the table ends with an empty row.
    """
    modules = [
        {"name": "execd", "offset": 0, "size": 5, "package": True},
        {"name": "execd.a", "offset": 16, "size": 7, "package": False},
    ]

    text = render_table(modules, "/some where/modules.bin")

    assert '.incbin \\"/some where/modules.bin\\"' in text
    assert [line.strip() for line in text.splitlines() if line.strip().startswith("{")] == [
        '{.name = "execd", .code = bundle_code + 0, .size = 5, .is_package = 1},',
        '{.name = "execd.a", .code = bundle_code + 16, .size = 7, .is_package = 0},',
        "{0},",
    ]
