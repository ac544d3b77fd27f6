-- Sandboxes, their history, API keys. Instants are microseconds since 1970 (UTC); lists and maps are JSON.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE sandboxes (
    sandbox_id      TEXT PRIMARY KEY,
    state           TEXT NOT NULL,
    reason          TEXT NOT NULL,
    message         TEXT NOT NULL,
    since           INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    expires_at      INTEGER,
    image           TEXT NOT NULL,
    entrypoint      TEXT NOT NULL,
    metadata        TEXT NOT NULL,
    extensions      TEXT NOT NULL,
    platform        TEXT,
    token_salt      TEXT NOT NULL,
    address         TEXT,
    managed_volumes TEXT NOT NULL,
    exit_code       INTEGER,
    step            TEXT NOT NULL,
    deleted_at      INTEGER,
    owner           TEXT NOT NULL,
    version         INTEGER NOT NULL,
    spec            TEXT NOT NULL
);

CREATE INDEX live_newest ON sandboxes (created_at DESC, sandbox_id DESC) WHERE deleted_at IS NULL;
CREATE INDEX live_state ON sandboxes (state, created_at DESC, sandbox_id DESC) WHERE deleted_at IS NULL;
CREATE INDEX live_expiry ON sandboxes (expires_at) WHERE deleted_at IS NULL AND expires_at IS NOT NULL;
CREATE INDEX unfinished ON sandboxes (step) WHERE step <> '';
CREATE INDEX tombstones ON sandboxes (deleted_at) WHERE deleted_at IS NOT NULL;

-- The pairs of live sandboxes, for filtering.
CREATE TABLE sandbox_metadata (
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (sandbox_id) ON DELETE CASCADE,
    key        TEXT NOT NULL,
    value      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (sandbox_id, key)
) WITHOUT ROWID;

CREATE INDEX metadata_pairs ON sandbox_metadata (key, value, created_at DESC, sandbox_id DESC);

CREATE TABLE events (
    number     INTEGER PRIMARY KEY,
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (sandbox_id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    message    TEXT NOT NULL
);

CREATE INDEX events_of ON events (sandbox_id, number);

CREATE TABLE idempotency (
    owner      TEXT NOT NULL,
    key        TEXT NOT NULL,
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (sandbox_id) ON DELETE CASCADE,
    PRIMARY KEY (owner, key)
) WITHOUT ROWID;

CREATE INDEX idempotency_of ON idempotency (sandbox_id);

CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    hash         TEXT NOT NULL,
    prefix       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    revoked_at   INTEGER
) WITHOUT ROWID;
