/*
 * tests/unit/capabilities: root without its privileges, for tests of permissions. It is then subject to the same checks
 * as any owner of a file, and can still enter a temporary directory that others cannot.
 */
#ifndef AOTICACHE_TESTS_CAPABILITIES_H
#define AOTICACHE_TESTS_CAPABILITIES_H

#include <linux/capability.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Drops all capabilities of this process permanently. */
static inline bool give_up_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    return syscall(SYS_capset, &header, none) == 0;
}

#endif
