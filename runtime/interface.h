/*
 * runtime/interface: what the exported functions share. Private.
 */
#ifndef AOTICACHE_RUNTIME_INTERFACE_H
#define AOTICACHE_RUNTIME_INTERFACE_H

#include "runtime/container.h"

/* Clears the thread's message; NULL, with a message, where the handle is NULL. */
aoticache_container *aoticache_interface_container(AOTInductorModelContainerHandle handle);
/* "no place for the WHAT". */
AOTIRuntimeError aoticache_interface_fail_result(const char *what);

#endif
