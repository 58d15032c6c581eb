/*
 * libaoticache: a content-addressed cache of compiled kernel libraries. The one header that a user includes.
 *
 * Authors of kernel libraries in C include runtime/kernel.h instead.
 */
#ifndef AOTICACHE_H
#define AOTICACHE_H

#include "base/base.h"
#include "base/tensor_view.h"
#include "cache/cache.h"
#include "cache/config.h"
#include "cache/cpu.h"
#include "cache/marks.h"
#include "cache/request.h"
#include "cache/transfer.h"
#include "cache/usage.h"
#include "eager/dispatch/dispatch_key.h"
#include "eager/dispatch/dispatcher.h"
#include "eager/dispatch/schema.h"
#include "eager/dispatch_holder.h"
#include "eager/eager.h"
#include "eager/holder.h"
#include "eager/package.h"
#include "eager/torch/binding.h"
#include "eager/value.h"
#include "loader/check.h"
#include "loader/cuda.h"
#include "loader/loader.h"
#include "loader/package.h"
#include "loader/residency.h"
#include "loader/runner.h"
#include "runtime/abi.h"

#endif
