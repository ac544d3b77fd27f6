-- A store as the first release wrote it (schema 1). It stays as it is: every later release must open it.
BEGIN TRANSACTION;
CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    hash         TEXT NOT NULL,
    prefix       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    revoked_at   INTEGER
) WITHOUT ROWID;
INSERT INTO "api_keys" VALUES('first','first','0796834ae778ad5495ef50031f6730d038f9df25066e2c0cd9c65732b154a6d1','',1790841600000000,1790841600000000,NULL);
INSERT INTO "api_keys" VALUES('u71pcyk4k7','ci','9f347ece1884b99c129f2a22f370661540103bdec6f4f96517eea1aec65e1379','bxk_u71pcyk4k7',1790841720000000,NULL,NULL);
CREATE TABLE events (
    number     INTEGER PRIMARY KEY,
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (sandbox_id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    message    TEXT NOT NULL
);
INSERT INTO "events" VALUES(1,'29e13b15-d66b-447f-b5a8-59ad9e682a5f',1790841600000000,'ACCEPTED','accepted; looking for the image');
INSERT INTO "events" VALUES(2,'29e13b15-d66b-447f-b5a8-59ad9e682a5f',1790841600000000,'CONTAINER_STARTING','creating the sandbox');
INSERT INTO "events" VALUES(3,'29e13b15-d66b-447f-b5a8-59ad9e682a5f',1790841600000000,'CONTAINER_RUNNING','the sandbox is running');
INSERT INTO "events" VALUES(4,'e70263b6-8d78-416e-93e8-f7070abcc9a7',1790841660000000,'ACCEPTED','accepted; looking for the image');
INSERT INTO "events" VALUES(5,'e70263b6-8d78-416e-93e8-f7070abcc9a7',1790841660000000,'CONTAINER_STARTING','creating the sandbox');
INSERT INTO "events" VALUES(6,'e70263b6-8d78-416e-93e8-f7070abcc9a7',1790841660000000,'CONTAINER_RUNNING','the sandbox is running');
INSERT INTO "events" VALUES(7,'d24d8993-60b9-4985-bebb-2a22f319473b',1790841720000000,'ACCEPTED','accepted; looking for the image');
INSERT INTO "events" VALUES(8,'d24d8993-60b9-4985-bebb-2a22f319473b',1790841720000000,'CONTAINER_STARTING','creating the sandbox');
INSERT INTO "events" VALUES(9,'d24d8993-60b9-4985-bebb-2a22f319473b',1790841720000000,'CONTAINER_RUNNING','the sandbox is running');
INSERT INTO "events" VALUES(10,'d24d8993-60b9-4985-bebb-2a22f319473b',1790841720000000,'CONTAINER_PAUSING','the sandbox is pausing');
INSERT INTO "events" VALUES(11,'d24d8993-60b9-4985-bebb-2a22f319473b',1790841720000000,'CONTAINER_PAUSED','the sandbox is paused');
INSERT INTO "events" VALUES(12,'15c0a09e-1652-4474-8b53-ec816f15d2b6',1790841720000000,'ACCEPTED','accepted; looking for the image');
INSERT INTO "events" VALUES(13,'15c0a09e-1652-4474-8b53-ec816f15d2b6',1790841720000000,'CONTAINER_STARTING','creating the sandbox');
INSERT INTO "events" VALUES(14,'15c0a09e-1652-4474-8b53-ec816f15d2b6',1790841720000000,'CONTAINER_RUNNING','the sandbox is running');
INSERT INTO "events" VALUES(15,'15c0a09e-1652-4474-8b53-ec816f15d2b6',1790841720000000,'DELETED','deleted by first');
INSERT INTO "events" VALUES(16,'15c0a09e-1652-4474-8b53-ec816f15d2b6',1790841720000000,'DELETED','deleted by first; nothing of it is left');
CREATE TABLE idempotency (
    owner      TEXT NOT NULL,
    key        TEXT NOT NULL,
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (sandbox_id) ON DELETE CASCADE,
    PRIMARY KEY (owner, key)
) WITHOUT ROWID;
INSERT INTO "idempotency" VALUES('first','job-7','29e13b15-d66b-447f-b5a8-59ad9e682a5f');
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "meta" VALUES('instance','34b62eba-d090-46ec-9830-9c85a7ed7fe7');
CREATE TABLE sandbox_metadata (
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (sandbox_id) ON DELETE CASCADE,
    key        TEXT NOT NULL,
    value      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (sandbox_id, key)
) WITHOUT ROWID;
INSERT INTO "sandbox_metadata" VALUES('e70263b6-8d78-416e-93e8-f7070abcc9a7','team','index',1790841660000000);
INSERT INTO "sandbox_metadata" VALUES('29e13b15-d66b-447f-b5a8-59ad9e682a5f','team','search',1790841600000000);
INSERT INTO "sandbox_metadata" VALUES('29e13b15-d66b-447f-b5a8-59ad9e682a5f','tier','2',1790841600000000);
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
INSERT INTO "sandboxes" VALUES('29e13b15-d66b-447f-b5a8-59ad9e682a5f','Running','CONTAINER_RUNNING','the sandbox is running',1790841600000000,1790841600000000,1790842200000000,'python:3.12-slim','["tail","-f","/dev/null"]','{"team":"search","tier":"2"}','{}',NULL,'NbeomZCxOYDTZylCr9XMtA','{"ip":"172.17.0.9","port":44772,"published_host":"127.0.0.1","published_port":40001}','[]',NULL,'',NULL,'first',3,'{"fingerprints":{"image":"35356e87abe3e9ef72c52339","timeout":"e8788709fdffe0f39cf61b1b","resourceLimits":"96c67193782dbfdeb467eb6f","env":"0eacf275405aa80fc425cd4a","metadata":"ace7a2d5bee14b358c2c18b3","entrypoint":"586991e19bdf2e68e6a251c9","secureAccess":"5144e8873b67417085dbb21b"},"timeout":600,"resourceLimits":{"memory":"512Mi"},"resourceRequests":{},"envNames":["LANG"],"volumes":[],"deleteVolumes":[],"stopGraceSeconds":10}');
INSERT INTO "sandboxes" VALUES('e70263b6-8d78-416e-93e8-f7070abcc9a7','Running','CONTAINER_RUNNING','the sandbox is running',1790841660000000,1790841660000000,NULL,'img:1','["tail","-f","/dev/null"]','{"team":"index"}','{}',NULL,'_fpZKcqcCmX68BUYePEwcw','{"ip":"172.17.0.9","port":44772,"published_host":"127.0.0.1","published_port":40002}','[]',NULL,'',NULL,'first',3,'{"fingerprints":{"image":"3d8f98a6f4f7126ca8f7ad6f","resourceLimits":"fe625d249f80131eef4ebdfa","metadata":"c99a9d3a390e66da840c1470","entrypoint":"586991e19bdf2e68e6a251c9","secureAccess":"5144e8873b67417085dbb21b"},"timeout":null,"resourceLimits":{},"resourceRequests":{},"envNames":[],"volumes":[],"deleteVolumes":[],"stopGraceSeconds":10}');
INSERT INTO "sandboxes" VALUES('d24d8993-60b9-4985-bebb-2a22f319473b','Paused','CONTAINER_PAUSED','the sandbox is paused',1790841720000000,1790841720000000,1790842320000000,'img:1','["tail","-f","/dev/null"]','{}','{}',NULL,'nstEiuuZZYFNSaLEUY7juw','{"ip":"172.17.0.9","port":44772,"published_host":"127.0.0.1","published_port":40003}','[]',NULL,'',NULL,'first',5,'{"fingerprints":{"image":"3d8f98a6f4f7126ca8f7ad6f","timeout":"e8788709fdffe0f39cf61b1b","resourceLimits":"fe625d249f80131eef4ebdfa","entrypoint":"586991e19bdf2e68e6a251c9","secureAccess":"5144e8873b67417085dbb21b"},"timeout":600,"resourceLimits":{},"resourceRequests":{},"envNames":[],"volumes":[],"deleteVolumes":[],"stopGraceSeconds":10}');
INSERT INTO "sandboxes" VALUES('15c0a09e-1652-4474-8b53-ec816f15d2b6','Terminated','DELETED','deleted by first; nothing of it is left',1790841720000000,1790841720000000,1790842320000000,'img:1','["tail","-f","/dev/null"]','{}','{}',NULL,'D7Tdgp8SwdCv81Xj7mUKaw',NULL,'[]',NULL,'',1790841720000000,'first',5,'{"fingerprints":{"image":"3d8f98a6f4f7126ca8f7ad6f","timeout":"e8788709fdffe0f39cf61b1b","resourceLimits":"fe625d249f80131eef4ebdfa","entrypoint":"586991e19bdf2e68e6a251c9","secureAccess":"5144e8873b67417085dbb21b"},"timeout":600,"resourceLimits":{},"resourceRequests":{},"envNames":[],"volumes":[],"deleteVolumes":[],"stopGraceSeconds":10}');
CREATE INDEX live_newest ON sandboxes (created_at DESC, sandbox_id DESC) WHERE deleted_at IS NULL;
CREATE INDEX live_state ON sandboxes (state, created_at DESC, sandbox_id DESC) WHERE deleted_at IS NULL;
CREATE INDEX live_expiry ON sandboxes (expires_at) WHERE deleted_at IS NULL AND expires_at IS NOT NULL;
CREATE INDEX unfinished ON sandboxes (step) WHERE step <> '';
CREATE INDEX tombstones ON sandboxes (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX metadata_pairs ON sandbox_metadata (key, value, created_at DESC, sandbox_id DESC);
CREATE INDEX events_of ON events (sandbox_id, number);
CREATE INDEX idempotency_of ON idempotency (sandbox_id);
COMMIT;
PRAGMA user_version = 1;
