/*
 * tests/unit/capabilities: root without its privileges, for tests of permissions. It meets the checks that any owner of a file
 * meets, and still reaches a temporary folder that others cannot enter.
 */
#ifndef AOTICACHE_TESTS_CAPABILITIES_H
#define AOTICACHE_TESTS_CAPABILITIES_H

#include <linux/capability.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Takes all capabilities from this process, for good. */
static inline bool give_up_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    return syscall(SYS_capset, &header, none) == 0;
}

#endif
