/*
 * aoticache/runner: for programs that load libraries and packages themselves: libraries, runners, constants, tensor checks,
 * .pt2 packages, GPUs.
 */
#ifndef AOTICACHE_FOR_RUNNER_H
#define AOTICACHE_FOR_RUNNER_H

#include "aoticache.h"
#include "eager/model/package/package.h"
#include "eager/model/tensors.h"
#include "loader/check/check.h"
#include "loader/cuda/cuda.h"
#include "loader/loader.h"
#include "loader/package/package.h"
#include "loader/runner/backend.h"
#include "loader/runner/constants.h"
#include "loader/runner/create.h"

#endif
