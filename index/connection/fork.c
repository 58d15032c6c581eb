/*
 * index/connection/fork: connections do not survive a fork, so a child must not use those of its parent.
 *
 * Reopening alone does not suffice: SQLite keeps, for the whole process, one record per open file of the locks it holds, and
 * the child inherits that record but not the locks (fcntl locks belong to a process). A connection that the child opens
 * while the parent's connection is still recorded would run without the locks that SQLite assumes; another process could
 * then delete the WAL that it uses. So the child closes its copies of all inherited connections first. That touches neither
 * the file nor the parent's locks as long as no transaction is in progress and closing does not checkpoint.
 *
 * Owns the list of open indexes and the count of threads that are inside SQLite through this library. If that count was not
 * zero at the fork, SQLite's own mutexes may be locked in the child by threads that do not exist there: such a child is
 * refused, which is better than waiting forever.
 */
#include "index/connection/connection_internal.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static aoticache_index *registry_head;

/*
 * The process that owns the connections. It is negative while a thread of that process drops inherited ones, and 0 if there
 * is none.
 */
static _Atomic pid_t owner;
static atomic_uint threads_inside;
static atomic_bool unusable;

void aoticache_index_disconnect(aoticache_index *index)
{
    for (size_t i = 0; i < AOTICACHE_INDEX_STATEMENT_COUNT; i++) {
        sqlite3_finalize(index->statements[i]);
        index->statements[i] = NULL;
    }
    sqlite3_close(index->db);
    index->db = NULL;
    if (index->gate_fd >= 0 && !aoticache_index_gate_is_lost(index))
        close(index->gate_fd);
    index->gate_fd = -1;
    index->is_in_gate = false;
    index->durability = AOTICACHE_INDEX_DURABILITY_UNSET;
    index->is_without_shm = false;
}

/* Runs in the child, where no other thread can be inside. */
static void drop_inherited(void)
{
    pthread_mutex_init(&registry_mutex, NULL);
    if (atomic_exchange(&threads_inside, 0) != 0)
        atomic_store(&unusable, true);
    for (aoticache_index *index = registry_head; index != NULL; index = index->next) {
        pthread_mutex_init(&index->lock, NULL);
        if (atomic_load(&unusable)) {
            index->db = NULL; /* a connection in the middle of an operation can only be abandoned */
            continue;
        }
        if (index->db != NULL)
            sqlite3_db_config(index->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        aoticache_index_disconnect(index);
    }
}

static void become_owner(pid_t process)
{
    pid_t seen = atomic_load(&owner);
    while (seen != process) {
        if (seen == -process)
            sched_yield(); /* another thread is dropping them */
        else if (atomic_compare_exchange_weak(&owner, &seen, -process)) {
            if (seen != 0)
                drop_inherited();
            atomic_store(&owner, process);
        }
        seen = atomic_load(&owner);
    }
}

aoticache_status aoticache_index_fork_enter(const char *path, aoticache_error *ret_error)
{
    pid_t process = getpid();
    if (__builtin_expect(atomic_load_explicit(&owner, memory_order_acquire) != process, 0))
        become_owner(process);
    if (__builtin_expect(atomic_load_explicit(&unusable, memory_order_relaxed), 0))
        return aoticache_error_set(ret_error, AOTICACHE_IO,
                                   "index %s: process %d was forked while another thread was using an index, so "
                                   "it cannot use SQLite; fork before starting threads, or execute a program",
                                   path, (int)process);
    atomic_fetch_add_explicit(&threads_inside, 1, memory_order_relaxed);
    return AOTICACHE_OK;
}

void aoticache_index_fork_leave(void)
{
    atomic_fetch_sub_explicit(&threads_inside, 1, memory_order_relaxed);
}

void aoticache_index_registry_lock(void)
{
    pthread_mutex_lock(&registry_mutex);
}

void aoticache_index_registry_unlock(void)
{
    pthread_mutex_unlock(&registry_mutex);
}

void aoticache_index_register(aoticache_index *index)
{
    pthread_mutex_lock(&registry_mutex);
    index->next = registry_head;
    registry_head = index;
    pthread_mutex_unlock(&registry_mutex);
}

void aoticache_index_unregister(aoticache_index *index)
{
    pthread_mutex_lock(&registry_mutex);
    for (aoticache_index **link = &registry_head; *link != NULL; link = &(*link)->next) {
        if (*link == index) {
            *link = index->next;
            break;
        }
    }
    pthread_mutex_unlock(&registry_mutex);
}
