/*
 * tests/helpers/index_version_1: the tables of an index of version 1, which tests migrate.
 */
#ifndef TESTS_HELPERS_INDEX_VERSION_1_H
#define TESTS_HELPERS_INDEX_VERSION_1_H

#define INDEX_VERSION_1                                                                                                \
    "CREATE TABLE entries(key BLOB NOT NULL, rank INTEGER NOT NULL, created_ns INTEGER NOT NULL, id INTEGER NOT NULL," \
    " artifact BLOB NOT NULL, library BLOB NOT NULL, library_bytes INTEGER NOT NULL, file_count INTEGER NOT NULL,"     \
    " compile_ns INTEGER NOT NULL, requirements BLOB NOT NULL,"                                                        \
    " PRIMARY KEY(key, rank DESC, created_ns DESC, id DESC)) STRICT, WITHOUT ROWID;"                                   \
    "CREATE INDEX entries_artifact ON entries(artifact);"                                                              \
    "CREATE TABLE details(id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL, guard TEXT NOT NULL,"               \
    " op TEXT NOT NULL, device TEXT NOT NULL, description TEXT NOT NULL, producer TEXT NOT NULL,"                      \
    " last_used_ns INTEGER NOT NULL, uses INTEGER NOT NULL) STRICT;"                                                   \
    "CREATE TABLE objects(digest BLOB PRIMARY KEY NOT NULL, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;"            \
    "CREATE TABLE artifact_objects(artifact BLOB NOT NULL, position INTEGER NOT NULL, object BLOB NOT NULL,"           \
    " PRIMARY KEY(artifact, position)) STRICT, WITHOUT ROWID;"                                                         \
    "CREATE INDEX artifact_objects_object ON artifact_objects(object);"                                                \
    "CREATE TABLE failures(key BLOB PRIMARY KEY NOT NULL, op TEXT NOT NULL, description TEXT NOT NULL,"                \
    " message TEXT NOT NULL, failed_ns INTEGER NOT NULL, retry_ns INTEGER NOT NULL) STRICT, WITHOUT ROWID;"            \
    "CREATE TABLE counts(name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"               \
    "CREATE TABLE meta(name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"                 \
    "PRAGMA application_id=1634694243; PRAGMA user_version=1;"

#endif
