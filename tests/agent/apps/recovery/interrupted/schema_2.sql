-- The schema of version 2, as the agent wrote it.
CREATE TABLE apps (name TEXT PRIMARY KEY, app BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE changes (app TEXT PRIMARY KEY, change BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE reserve (room BLOB);
CREATE TABLE undone (change TEXT PRIMARY KEY);
PRAGMA application_id = 0x526F4C41;
PRAGMA user_version = 2;
