/*
 * loader/proxy_operators: see proxy_operators.h.
 *
 * The call of the proxy executor has only a number for the operator; the table that goes with it is in a file of its own.
 * But libraries keep the names of what they call for profilers, as "torch.ops.aten.cholesky.default": those are looked for.
 * It is for a message, so a library without them is none the worse.
 */
#include "loader/proxy_operators.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MARK "torch.ops."

enum { CHUNK_BYTES = 16384, LONGEST_NAME = 200 };

/* "aten.cholesky.default" becomes "aten::cholesky", "aten.sum.dim_IntList" becomes "aten::sum.dim_IntList". */
static bool translate(const char *name, size_t length, char ret_operator[LONGEST_NAME + 2])
{
    static const char ordinary[] = ".default";
    const char *dot = memchr(name, '.', length);
    size_t space = dot != NULL ? (size_t)(dot - name) : 0;
    if (space == 0 || space + 1 == length)
        return false;
    if (length > sizeof ordinary - 1 && memcmp(name + length - (sizeof ordinary - 1), ordinary, sizeof ordinary - 1) == 0)
        length -= sizeof ordinary - 1;
    snprintf(ret_operator, LONGEST_NAME + 2, "%.*s::%.*s", (int)space, name, (int)(length - space - 1), dot + 1);
    return true;
}

static bool is_listed(const char *text, const char *operator)
{
    size_t length = strlen(operator);
    for (const char *at = text; (at = strstr(at, operator)) != NULL; at += length)
        if ((at == text || at[-1] == ' ') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

/* false: there is no room for more. */
static bool add(const char *name, size_t length, char *text, size_t size)
{
    char operator[LONGEST_NAME + 2];
    size_t used = strlen(text);
    if (!translate(name, length, operator) || is_listed(text, operator))
        return true;
    if (used + strlen(operator) + sizeof ", " > size)
        return false;
    snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", operator);
    return true;
}

/* Those whose mark begins before `limit`. */
static bool add_all_in(const char *bytes, size_t size, size_t limit, char *text, size_t text_size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    const char *at = bytes, *end = bytes + size;
    while ((at = memmem(at, (size_t)(end - at), MARK, sizeof MARK - 1)) != NULL && at < bytes + limit) {
        at += sizeof MARK - 1;
        size_t length = 0;
        while (at + length < end && at[length] != '\0' && strchr(letters, at[length]) != NULL)
            length++;
        if (length > 0 && length <= LONGEST_NAME && !add(at, length, text, text_size))
            return false;
    }
    return true;
}

void aoticache_proxy_operators_format(const aoticache_elf *elf, char *ret_text, size_t size)
{
    /* Chunks overlap by what a name can be long: one that begins where it might be cut is left to the next chunk. */
    enum { OVERLAP = sizeof MARK + LONGEST_NAME };
    char bytes[CHUNK_BYTES];
    ret_text[0] = '\0';
    for (uint64_t offset = 0; offset < elf->file_size; offset += CHUNK_BYTES - OVERLAP) {
        ssize_t got = pread(elf->fd, bytes, sizeof bytes, (off_t)offset);
        if (got <= 0)
            return;
        bool is_last = offset + (uint64_t)got >= elf->file_size;
        size_t limit = is_last ? (size_t)got : (size_t)got > OVERLAP ? (size_t)got - OVERLAP : 0;
        if (!add_all_in(bytes, (size_t)got, limit, ret_text, size))
            return;
    }
}
