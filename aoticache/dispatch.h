/*
 * aoticache/dispatch: for frameworks that have no dispatcher: schemas, dispatch keys, registrations and calls of operators.
 */
#ifndef AOTICACHE_FOR_DISPATCH_H
#define AOTICACHE_FOR_DISPATCH_H

#include "aoticache.h"
#include "eager/dispatch/dispatch_key.h"
#include "eager/dispatch/dispatcher.h"
#include "eager/dispatch/schema/schema.h"
#include "eager/holder/dispatch_holder.h"

#endif
