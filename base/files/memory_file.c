/*
 * base/files/memory_file: creates, fills and seals files in memory. base/digest.c copies while it hashes.
 */
#include "base/files/memory_file.h"

#include "base/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

int aoticache_memory_file_create(void)
{
    /* Not executable as a program, as some systems require; mapping it for execution is still allowed. */
    int file = memfd_create("aoticache-kernel", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (file < 0 && errno == EINVAL) /* Linux before 6.3 */
        file = memfd_create("aoticache-kernel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return file;
}

bool aoticache_memory_file_write(int file, const void *bytes, size_t size, uint64_t offset)
{
    const char *from = bytes;
    if (!aoticache_syscall_is_within_limit(offset + size)) { /* the limit holds for files in memory, too */
        errno = EFBIG;
        return false;
    }
    while (size > 0) {
        const ssize_t written = pwrite(file, from, size, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            errno = written == 0 ? ENOSPC : errno;
            return false;
        }
        from += written;
        offset += (uint64_t)written;
        size -= (size_t)written;
    }
    return true;
}

/*
 * Seals the file. F_SEAL_FUTURE_WRITE suffices: the file is not mapped for writing, so a seal on future writes covers all
 * writes. F_SEAL_WRITE waits until there are no other references to a page, and fails with EBUSY if the kernel itself holds
 * one for long, because it migrates pages or examines which are used.
 */
bool aoticache_memory_file_seal(int file)
{
    enum { SIZE = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, TRIES = 5 };
    if (fcntl(file, F_ADD_SEALS, SIZE | F_SEAL_FUTURE_WRITE) == 0)
        return true;
    for (int i = 0; i < TRIES; i++) /* Linux before 5.1 */
        if (fcntl(file, F_ADD_SEALS, SIZE | F_SEAL_WRITE) == 0)
            return true;
        else if (errno != EBUSY)
            return false;
    return false;
}
