CREATE TABLE apps (name TEXT PRIMARY KEY, app BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "apps" VALUES('stopped',CAST('{"name":"stopped","image":"s/app:1","ssh_port":28072,"http_port":23490,"cpu":50,"memory":32,"env":{},"description":"","command":[],"ssh_target":null,"http_target":null,"stop_seconds":null,"pull":"always","data":[],"health":null,"created_at":"2026-11-22T14:59:22Z","labels":[],"desired":"stopped","container_id":"c3","image_id":"p1","image_digest":"s/app@sha256:p1","volumes":{"/srv":"rollcall-stopped"},"password":null,"password_pending":false,"failed":false,"message":null,"down":null,"revision":1}' AS BLOB));
INSERT INTO "apps" VALUES('web',CAST('{"name":"web","image":"s/app:2","ssh_port":22721,"http_port":21549,"cpu":50,"memory":32,"env":{"TOKEN":"s3cret"},"description":"Shop","command":[],"ssh_target":null,"http_target":null,"stop_seconds":null,"pull":"always","data":[],"health":null,"created_at":"2026-11-22T14:59:21Z","labels":[],"desired":"running","container_id":"c2","image_id":"p2","image_digest":"s/app@sha256:p2","volumes":{"/srv":"rollcall-web"},"password":null,"password_pending":false,"failed":false,"message":null,"down":null,"revision":2}' AS BLOB));
CREATE TABLE events (
        number INTEGER PRIMARY KEY AUTOINCREMENT, app TEXT NOT NULL, event BLOB NOT NULL
    );
INSERT INTO "events" VALUES(1,'web',CAST('{"time":1795359562.0833385,"app":"web","by":"operator","action":"create","outcome":"done","revision":1}' AS BLOB));
INSERT INTO "events" VALUES(2,'web',CAST('{"time":1795359562.1488166,"app":"web","by":"operator","action":"update","outcome":"done","changed":["image","description","image_id"],"revision":2}' AS BLOB));
INSERT INTO "events" VALUES(3,'stopped',CAST('{"time":1795359562.1791427,"app":"stopped","by":"operator","action":"create","outcome":"done","revision":1}' AS BLOB));
INSERT INTO "events" VALUES(4,'stopped',CAST('{"time":1795359562.1987557,"app":"stopped","by":"operator","action":"stop","outcome":"done"}' AS BLOB));
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "facts" VALUES('adopted','yes');
INSERT INTO "facts" VALUES('agent','4651adcbecc56705');
CREATE TABLE former_apps (number INTEGER PRIMARY KEY AUTOINCREMENT, app TEXT NOT NULL UNIQUE);
CREATE TABLE journal (app TEXT PRIMARY KEY, entry BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE kept_data (app TEXT PRIMARY KEY, volumes BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE pulled_images (image_id TEXT PRIMARY KEY, tags BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "pulled_images" VALUES('p1',CAST('["s/app:1"]' AS BLOB));
INSERT INTO "pulled_images" VALUES('p2',CAST('["s/app:2"]' AS BLOB));
CREATE TABLE reserve (room BLOB);
CREATE TABLE revisions (app TEXT NOT NULL, revision INTEGER NOT NULL, fields BLOB NOT NULL, image_id TEXT, digest TEXT, PRIMARY KEY (app, revision)) WITHOUT ROWID;
INSERT INTO "revisions" VALUES('stopped',1,CAST('{"name":"stopped","image":"s/app:1","ssh_port":28072,"http_port":23490,"cpu":50,"memory":32,"env":{},"description":"","command":[],"ssh_target":null,"http_target":null,"stop_seconds":null,"pull":"always","data":[],"health":null,"revision":1,"created_at":"2026-11-22T14:59:22Z","by":"operator","operation":"create","changed":[],"rollback_to":null,"image_id":"p1","digest":"s/app@sha256:p1"}' AS BLOB),'p1','s/app@sha256:p1');
INSERT INTO "revisions" VALUES('web',1,CAST('{"name":"web","image":"s/app:1","ssh_port":22721,"http_port":21549,"cpu":50,"memory":32,"env":{"TOKEN":"s3cret"},"description":"","command":[],"ssh_target":null,"http_target":null,"stop_seconds":null,"pull":"always","data":[],"health":null,"revision":1,"created_at":"2026-11-22T14:59:21Z","by":"operator","operation":"create","changed":[],"rollback_to":null,"image_id":"p1","digest":"s/app@sha256:p1"}' AS BLOB),'p1','s/app@sha256:p1');
INSERT INTO "revisions" VALUES('web',2,CAST('{"name":"web","image":"s/app:2","ssh_port":22721,"http_port":21549,"cpu":50,"memory":32,"env":{"TOKEN":"s3cret"},"description":"Shop","command":[],"ssh_target":null,"http_target":null,"stop_seconds":null,"pull":"always","data":[],"health":null,"revision":2,"created_at":"2026-11-22T14:59:22Z","by":"operator","operation":"update","changed":["image","description","image_id"],"rollback_to":null,"image_id":"p2","digest":"s/app@sha256:p2"}' AS BLOB),'p2','s/app@sha256:p2');
CREATE TABLE undone (change TEXT PRIMARY KEY);
CREATE INDEX events_of_apps ON events (app, number);
PRAGMA application_id = 1383025729;
PRAGMA user_version = 7;
