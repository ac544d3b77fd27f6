"""The daemon injected into every sandbox.

It may import `specs` and nothing else of the house. What it imports before it
listens is paid for by every sandbox, so `asyncio`, `re`, `typing`, `dataclasses`,
`enum`, `json`, `logging`, `subprocess`, `pathlib`, `ssl` and `socket` stay out
(a test lists `sys.modules` at the moment of listening).
"""
