/*
 * index/connection/version: refuses an index that a newer library has migrated.
 */
#include "index/connection/connection_internal.h"

aoticache_status aoticache_index_check_version(const aoticache_index *index, int64_t version,
                                               aoticache_error *ret_error)
{
    if (version <= AOTICACHE_INDEX_VERSION)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "index %s: version %lld, this library knows up to %d: use a newer library or another"
                               " cache directory",
                               index->path, (long long)version, AOTICACHE_INDEX_VERSION);
}

/* Refuses a newer index. A failure to read the version is not reported: the statement itself will report it better. */
aoticache_status aoticache_index_refuse_newer(aoticache_index *index, aoticache_error *ret_error)
{
    sqlite3_stmt **const statement = &index->statements[SQL(VERSION)];
    int64_t version = 0;
    if (*statement == NULL && sqlite3_prepare_v3(index->db, "PRAGMA user_version", -1, SQLITE_PREPARE_PERSISTENT,
                                                 statement, NULL) != SQLITE_OK)
        return AOTICACHE_OK;
    if (sqlite3_step(*statement) == SQLITE_ROW)
        version = sqlite3_column_int64(*statement, 0);
    sqlite3_reset(*statement);
    return aoticache_index_check_version(index, version, ret_error);
}
