/*
 * base/threads: the flag that compiles are cancelled in this process.
 */
#include "base/base.h"
#include "base/threads.h"

#include <stdatomic.h>

static atomic_bool cancelled;

void aoticache_compiles_cancel(void)
{
    atomic_store(&cancelled, true);
}

bool aoticache_compiles_are_cancelled(void)
{
    return atomic_load_explicit(&cancelled, memory_order_relaxed);
}
