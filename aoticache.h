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
#include "cache/config/config.h"
#include "cache/gc/collect.h"
#include "cache/request/cpu.h"
#include "cache/pins/pins.h"
#include "cache/request/request.h"
#include "cache/transfer/transfer.h"
#include "cache/trust/trust.h"
#include "cache/remote/remote.h"
#include "cache/judgements.h"
#include "cache/stats/statistics.h"
#include "cache/stats/usage.h"
#include "cache/verify/verify.h"
#include "eager/call.h"
#include "eager/dispatch/dispatch_key.h"
#include "eager/dispatch/dispatcher.h"
#include "eager/schema/schema.h"
#include "eager/holder/dispatch_holder.h"
#include "eager/eager.h"
#include "eager/holder/holder.h"
#include "eager/package/package.h"
#include "eager/model/model.h"
#include "eager/torch/binding.h"
#include "eager/value.h"
#include "loader/check/check.h"
#include "loader/cuda/cuda.h"
#include "loader/loader.h"
#include "loader/package/package.h"
#include "loader/runner/runner.h"
#include "runtime/abi.h"

#endif
