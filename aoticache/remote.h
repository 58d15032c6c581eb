/*
 * aoticache/remote: for programs that push to and pull from remotes, and for authors of modules for further kinds of servers.
 */
#ifndef AOTICACHE_FOR_REMOTE_H
#define AOTICACHE_FOR_REMOTE_H

#include "aoticache.h"
#include "cache/remote/module.h"
#include "cache/remote/remote.h"

#endif
