-- Which gateway process is at work on a sandbox; empty when none is. Several may share one store.

ALTER TABLE sandboxes ADD COLUMN worker TEXT NOT NULL DEFAULT '';
