/*
 * aoticache/admin: for programs that administer a cache: list, remove, collect, verify, export and import entries, pin and trust
 * them, read statistics and configuration. Names of dtypes, devices and CPU features as text.
 */
#ifndef AOTICACHE_FOR_ADMIN_H
#define AOTICACHE_FOR_ADMIN_H

#include "aoticache.h"
#include "base/names.h"
#include "cache/config/config.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/judgements.h"
#include "cache/pins/pins.h"
#include "cache/request/cpu.h"
#include "cache/request/cpu_detect.h"
#include "cache/request/text.h"
#include "cache/stats/statistics.h"
#include "cache/stats/usage.h"
#include "cache/transfer/transfer.h"
#include "cache/trust/trust.h"
#include "cache/verify/verify.h"

#endif
