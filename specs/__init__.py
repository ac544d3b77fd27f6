"""What is said on the wire: names, shapes, errors and the published documents.

Nothing here does I/O or knows who is speaking. Modules that execd loads
(`names`, `errors`, `wire`, `execd`, `stream`) import nothing heavy, because
every sandbox pays for what they import.
"""
