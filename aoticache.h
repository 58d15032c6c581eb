/*
 * libaoticache: a content-addressed cache of compiled kernel libraries. The one header that a user includes.
 *
 * Authors of kernel libraries in C include runtime/kernel.h instead.
 */
#ifndef AOTICACHE_H
#define AOTICACHE_H

#include "base/base.h"
#include "cache/cache.h"
#include "cache/cpu.h"
#include "cache/request.h"
#include "eager/eager.h"
#include "loader/loader.h"
#include "runtime/abi.h"

#endif
