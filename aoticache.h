/*
 * libaoticache: a content-addressed cache of compiled kernel libraries. This header is for users of the cache: contexts, calls and
 * holders, hooks, the cache, requests, stored models, errors. Further headers are for others:
 *
 * <aoticache/admin.h>     programs that administer a cache
 * <aoticache/runner.h>    programs that load libraries and packages themselves
 * <aoticache/dispatch.h>  frameworks that have no dispatcher
 * <aoticache/torch.h>     bindings in a process with PyTorch
 * <aoticache/remote.h>    remotes, and modules for further kinds of servers
 * <aoticache/kernel.h>    authors of kernel libraries in C
 */
#ifndef AOTICACHE_H
#define AOTICACHE_H

#include "base/base.h"
#include "base/tensor_view.h"
#include "cache/cache.h"
#include "cache/request/request.h"
#include "eager/compile/compile.h"
#include "eager/holder/call.h"
#include "eager/holder/holder.h"
#include "eager/model/model.h"
#include "eager/value.h"
#include "loader/runner/runner.h"
#include "loader/tensor.h"
#include "runtime/abi.h"

#endif
